//! The section `[reclaim]`: its keys are named like the options of `hugepilot reclaim`; a use of memory has a key of its own name.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use heat::memory_use::MemoryUse;
use heat::units::Nanos;
use reclaim::ReclaimOptions;
use reclaim::mechanism::DropBehindOptions;
use reclaim::policy::{ClassPolicy, MappedPageCost, Policies, Preset};

use crate::config::section::Section;
use crate::config::{Mistake, set};

pub(super) fn options(mut section: Section<'_>) -> Result<ReclaimOptions, Mistake> {
    let preset = section.value("preset", Preset::from_str)?.unwrap_or_default();
    let mut policies = preset.policies();
    set(&mut policies.mapped_page_cost, section.value("mapped-page-cost", MappedPageCost::from_str)?);
    let free = section.value("when-free-below", Policies::parse_mark)?;
    policies.set_marks(free, section.value("when-huge-below", Policies::parse_mark)?);
    for class in MemoryUse::ALL {
        set(&mut policies.classes[class], section.value(class.name(), ClassPolicy::from_str)?);
    }
    let drop_behind = DropBehindOptions {
        paths: section.list("drop-behind", parse_path)?.unwrap_or_default(),
        except: section.list("except", parse_path)?.unwrap_or_default(),
        idle: section.value("idle", DropBehindOptions::parse_wait)?.unwrap_or(preset.idle()).duration(),
        spare_mapped: policies.mapped_page_cost == MappedPageCost::FORBIDS,
        write_behind: section.value("write-behind", DropBehindOptions::parse_wait)?.map(Nanos::duration),
    };
    section.finish()?;
    Ok(ReclaimOptions { policies, drop_behind })
}

/// Relative paths are refused: the author of a configuration does not know the daemon's working directory.
fn parse_path(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let right = path.is_absolute() && !text.contains('\0');
    right.then(|| path.to_owned()).ok_or_else(|| format!("'{text}' is not a whole path: write one that begins with /"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heat::units::{Bytes, SizeOrShare};

    use super::*;
    use crate::config::Config;

    fn error(text: &str) -> String {
        Config::parse(&format!("[reclaim]\n{text}\n")).unwrap_err().to_string()
    }

    #[test]
    fn every_key_arrives() {
        let text = "[reclaim]\npreset = 'database'\nmapped-page-cost = 40\nwhen-huge-below = '8G'\nmapped-files = '5%:1G'\n\
                    drop-behind = ['/a', '/b c']\nexcept = ['/a/d']\nidle = '1m'\nwrite-behind = '5s'\n";
        let ReclaimOptions { policies, drop_behind } = Config::parse(text).unwrap().reclaim.unwrap();
        assert_eq!(policies.mapped_page_cost.get(), 40);
        assert_eq!((policies.free_below, policies.huge_below), (None, Some(SizeOrShare::Size(Bytes(8 << 30)))));
        let files = policies.classes[MemoryUse::MappedFiles];
        assert_eq!((files.rate, files.floor), (SizeOrShare::Share(0.05), SizeOrShare::Size(Bytes(1 << 30))));
        let expected = DropBehindOptions {
            paths: vec!["/a".into(), "/b c".into()],
            except: vec!["/a/d".into()],
            idle: Duration::from_secs(60),
            spare_mapped: false,
            write_behind: Some(Duration::from_secs(5)),
        };
        assert_eq!(drop_behind, expected);
    }

    #[test]
    fn an_empty_section_is_the_balanced_preset() {
        let reclaim = Config::parse("[reclaim]\n").unwrap().reclaim.unwrap();
        assert_eq!((reclaim.policies, reclaim.drop_behind.paths.len()), (Preset::Balanced.policies(), 0));
        assert_eq!(Config::parse("").unwrap().reclaim, None);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, expected) in [
            ("unmaped-cache = '1%'", "unknown key 'unmaped-cache' in line 2; did you mean 'unmapped-cache'?"),
            ("preset = 'fast'", "preset in line 2: 'fast' is not a preset: write one of backup-server,"),
            (
                "drop-behind = '/a'",
                "drop-behind in line 2: ''/a'' cannot stand here: write texts in quotes between brackets",
            ),
            ("drop-behind = ['a']", "drop-behind in line 2: 'a' is not a whole path: write one that begins with /"),
            ("drop-behind = [1]", "drop-behind in line 2: '1' cannot stand here"),
            ("mapped-page-cost = 101", "mapped-page-cost in line 2: '101' is not a cost"),
            ("shared = 'lots'", "shared in line 2: 'lots' is not a size"),
        ] {
            assert!(error(text).starts_with(expected), "{text}\n{}\n{expected}", error(text));
        }
        let error = Config::parse("reclaim = 1\n").unwrap_err().to_string();
        assert!(
            error.starts_with("reclaim in line 1: '1' cannot stand here: write keys below a line [reclaim]"),
            "{error}"
        );
    }
}
