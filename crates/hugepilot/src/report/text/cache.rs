//! Files in the page cache, one line for each.

use heat::units::Bytes;
use launch::cached_file::CachedFile;
use pilot::words::{percent, printable};

use super::joined;
use crate::report::{CacheOutcome, CacheReport};

const PATH_LIMIT: usize = 60;

/// What came of each file.
pub fn cache(report: &CacheReport<'_>) -> String {
    let mut lines = Vec::new();
    for (path, outcome) in report.files {
        let told = match outcome {
            Ok(CacheOutcome::Read(cached)) => read(cached),
            Ok(CacheOutcome::Dropped { stays: Some(Bytes(0)) }) => "dropped from the page cache".to_owned(),
            Ok(CacheOutcome::Dropped { stays: Some(stays) }) => {
                format!("dropped but for {stays}, which a program maps or which is not on disk yet")
            }
            Ok(CacheOutcome::Dropped { stays: None }) => "dropped as far as no program maps it".to_owned(),
            Err(error) => {
                lines.push(format!("left as it is: {error}"));
                continue;
            }
        };
        lines.push(format!("{}: {told}", printable(&path.to_string_lossy(), PATH_LIMIT)));
    }
    if report.nothing_is_huge() && report.read().any(|cached| cached.refused > Bytes(0)) {
        lines.push(
            "no huge page was obtained: either the file system has no large folios (XFS has them, ext4 since Linux 6.16), or there is no \
             contiguous memory, for which `hugepilot doctor` has a remedy"
                .to_owned(),
        );
    }
    joined(lines)
}

fn read(cached: &CachedFile) -> String {
    let share = percent(cached.huge.0 as f64, cached.whole.0 as f64);
    let mut told = format!("{} of {} on huge pages ({share})", cached.huge, cached.whole);
    let rest = [
        (cached.in_use, "stay on base pages, which a program maps, until it maps them anew"),
        (cached.refused, "got none"),
        (cached.untold, "stay on base pages, and why is told only to the file's owner and root"),
        (cached.not_reached(), "were not reached"),
    ];
    for (bytes, what) in rest.into_iter().filter(|(bytes, _)| bytes.0 > 0) {
        told.push_str(&format!("; {bytes} {what}"));
    }
    told
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::report::samples::cached;

    #[test]
    fn every_outcome_is_told() {
        insta::assert_snapshot!(cache(&cached()));
    }

    #[test]
    fn that_nothing_came_on_huge_pages_is_told_with_its_causes() {
        let refused = CachedFile { whole: Bytes(2 << 20), refused: Bytes(2 << 20), ..CachedFile::default() };
        let files = [(Path::new("/mnt/file"), Ok(CacheOutcome::Read(refused)))];
        assert!(cache(&CacheReport { files: &files }).contains("no large folios"));
        assert!(!CacheReport { files: &[] }.nothing_is_huge() && !cached().nothing_is_huge());
    }
}
