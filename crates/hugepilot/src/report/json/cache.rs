//! Files in the page cache.

use launch::cached_file::CachedFile;

use super::{ReportKind, document};
use crate::report::{CacheOutcome, CacheReport};

/// What came of each file; of one that was left as it is, why.
pub fn cache(report: &CacheReport<'_>) -> String {
    let files = report.files.iter().map(|(path, outcome)| {
        let read: Option<&CachedFile> = match outcome {
            Ok(CacheOutcome::Read(cached)) => Some(cached),
            _ => None,
        };
        let stays = match outcome {
            Ok(CacheOutcome::Dropped { stays }) => *stays,
            _ => None,
        };
        object! {
            path,
            whole_bytes: read.map(|cached| cached.whole),
            huge_bytes: read.map(|cached| cached.huge),
            in_use_bytes: read.map(|cached| cached.in_use),
            refused_bytes: read.map(|cached| cached.refused),
            untold_bytes: read.map(|cached| cached.untold),
            not_reached_bytes: read.map(CachedFile::not_reached),
            stays_bytes: stays,
            error: outcome.as_ref().err().map(ToString::to_string),
        }
    });
    document(ReportKind::Cache, &object! { files: files.collect::<Vec<_>>() })
}
