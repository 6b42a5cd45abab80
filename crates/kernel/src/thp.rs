//! Settings of transparent huge pages, from `/sys/kernel/mm/transparent_hugepage`.
//!
//! Owns: those files (Documentation/admin-guide/mm/transhuge.rst). Never touches: the settings themselves.

use heat::units::{Bytes, HUGE_PAGE, Nanos, Pages};

use crate::root::optional;
use crate::{KernelError, Malformed, Root, hugetlb};

/// Where the settings are.
pub const DIRECTORY: &str = "sys/kernel/mm/transparent_hugepage";

/// All settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thp {
    /// Which memory gets huge pages: `always`, `madvise`, `never`.
    pub enabled: Setting,
    /// When page faults wait for the kernel to make room: `always`, `defer`, `defer+madvise`, `madvise`, `never`.
    pub defrag: Setting,
    /// The same as `enabled` for shared memory; `None` on a kernel built without it.
    pub shmem_enabled: Option<Setting>,
    /// The thread that makes huge pages in the background.
    pub khugepaged: Khugepaged,
    /// The setting of every single size, ascending (6.8 and later).
    pub sizes: Vec<SizeSetting>,
}

/// One choice of several, such as `always [madvise] never`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The one in brackets.
    pub chosen: String,
    /// All choices that the kernel accepts, in its order.
    pub choices: Vec<String>,
}

/// The setting of one size of huge page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeSetting {
    /// Bytes in such a page.
    pub size: Bytes,
    /// `always`, `inherit`, `madvise`, `never`.
    pub enabled: Setting,
}

/// The settings and counters of the kernel's background thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Khugepaged {
    /// Base pages that it scans before it sleeps.
    pub pages_to_scan: Pages,
    /// How long it sleeps.
    pub sleep: Nanos,
    /// Huge pages that it has made since boot.
    pub collapsed: u64,
    /// Complete scans of all memory since boot.
    pub full_scans: u64,
    /// Unpopulated base pages that it tolerates in a huge page that it makes (of 512).
    pub max_unpopulated: Pages,
}

impl Thp {
    /// Reads all settings; `None` on a kernel built without transparent huge pages.
    ///
    /// Errors: `enabled` is there but cannot be read, or another setting is missing, unreadable or malformed.
    pub fn read(root: &Root) -> Result<Option<Self>, KernelError> {
        let Some(enabled) = optional(setting(root, "enabled"))? else { return Ok(None) };
        Ok(Some(Self {
            enabled,
            defrag: setting(root, "defrag")?,
            shmem_enabled: optional(setting(root, "shmem_enabled"))?,
            khugepaged: Khugepaged::read(root)?,
            sizes: sizes(root)?,
        }))
    }

    /// Whether the kernel maps new shared memory where huge pages fit.
    pub fn aligns_shared_memory(&self) -> bool {
        self.shmem_enabled.as_ref().is_some_and(|setting| !setting.is("never") && !setting.is("deny"))
    }

    /// The setting for pages of 2 MiB, and the file that contains it.
    pub fn of_huge_pages(&self) -> (&str, String) {
        self.of_size(Bytes(HUGE_PAGE)).unwrap_or_else(|| (&self.enabled.chosen, format!("{DIRECTORY}/enabled")))
    }

    /// The same for pages of another size; None where the kernel has none: since 6.8 each size has its own setting, which may defer to the general one.
    pub fn of_size(&self, size: Bytes) -> Option<(&str, String)> {
        let own = self.sizes.iter().find(|setting| setting.size == size)?;
        Some(match own.enabled.is("inherit") {
            true => (&self.enabled.chosen, format!("{DIRECTORY}/enabled")),
            false => (&own.enabled.chosen, format!("{DIRECTORY}/hugepages-{}kB/enabled", size.0 >> 10)),
        })
    }
}

impl Khugepaged {
    /// Reads its directory.
    ///
    /// Errors: a file of the directory is missing or unreadable, or holds no number.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        let number = |name: &str| root.number::<u64>(&format!("{DIRECTORY}/khugepaged/{name}"));
        Ok(Self {
            pages_to_scan: Pages(number("pages_to_scan")?),
            sleep: Nanos(number("scan_sleep_millisecs")?.saturating_mul(1_000_000)),
            collapsed: number("pages_collapsed")?,
            full_scans: number("full_scans")?,
            max_unpopulated: Pages(number("max_ptes_none")?),
        })
    }
}

impl Setting {
    /// Parses `always [madvise] never`.
    ///
    /// Errors: no word is in brackets.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut chosen = None;
        let mut choices = Vec::new();
        for word in text.split_ascii_whitespace() {
            let inner = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
            chosen = chosen.or(inner);
            choices.push(inner.unwrap_or(word).to_owned());
        }
        match chosen {
            Some(chosen) => Ok(Self { chosen: chosen.to_owned(), choices }),
            None => Err(Malformed::new(1, "a choice in brackets such as 'always [madvise] never'", text.trim())),
        }
    }

    /// Whether this is the chosen setting.
    pub fn is(&self, choice: &str) -> bool {
        self.chosen == choice
    }
}

/// Whether the first touch of memory that requests huge pages takes one: not where the setting is `never`. An unknown setting does not count as
/// `never`.
pub fn given_at_first_touch(root: &Root) -> bool {
    let own = setting(root, &format!("hugepages-{}kB/enabled", HUGE_PAGE >> 10));
    let holds = own.ok().filter(|own| !own.is("inherit")).or_else(|| setting(root, "enabled").ok());
    holds.is_none_or(|setting| !setting.is("never"))
}

fn setting(root: &Root, name: &str) -> Result<Setting, KernelError> {
    root.parsed(&format!("{DIRECTORY}/{name}"), Root::LIMIT, Setting::parse)
}

fn sizes(root: &Root) -> Result<Vec<SizeSetting>, KernelError> {
    let mut sizes = Vec::new();
    for name in root.entries(DIRECTORY)? {
        let Some(size) = hugetlb::page_size(&name) else { continue };
        // Sizes available only to shared memory lack the file.
        if let Some(enabled) = optional(setting(root, &format!("{name}/enabled")))? {
            sizes.push(SizeSetting { size, enabled });
        }
    }
    sizes.sort_by_key(|setting| setting.size);
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_choice_in_brackets_is_made() {
        let setting = Setting::parse("always defer defer+madvise [madvise] never\n").unwrap();
        assert!(setting.is("madvise") && !setting.is("defer+madvise"));
        assert_eq!(setting.choices, ["always", "defer", "defer+madvise", "madvise", "never"]);
        assert!(Setting::parse("always madvise never\n").is_err());
        assert!(Setting::parse("").is_err());
    }

    #[test]
    fn a_size_may_have_its_own_mind_about_the_first_touch() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let given = |general: &str, own: Option<&str>| {
            let directory = tree.path().join(DIRECTORY);
            std::fs::create_dir_all(directory.join("hugepages-2048kB")).unwrap();
            std::fs::write(directory.join("enabled"), general).unwrap();
            match own {
                Some(own) => std::fs::write(directory.join("hugepages-2048kB/enabled"), own).unwrap(),
                None => drop(std::fs::remove_file(directory.join("hugepages-2048kB/enabled"))),
            }
            given_at_first_touch(&root)
        };
        assert!(given_at_first_touch(&root), "unknown");
        assert!(given("always [madvise] never", None) && !given("always madvise [never]", None));
        assert!(!given("always madvise [never]", Some("always [inherit] madvise never")));
        assert!(given("always madvise [never]", Some("always inherit [madvise] never")));
        assert!(!given("[always] madvise never", Some("always inherit madvise [never]")));
    }

    #[test]
    fn a_kernel_without_huge_pages_has_no_settings() {
        assert_eq!(Thp::read(&Root::at(tempfile::tempdir().unwrap().path())).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(\\[?[a-z+]{0,8}\\]? ?){0,6}|.{0,30}") {
            if let Ok(setting) = Setting::parse(&text) {
                prop_assert!(setting.choices.contains(&setting.chosen));
            }
        }
    }
}
