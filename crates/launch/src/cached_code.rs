//! Code on huge pages of the page cache, before a program maps it.
//!
//! Owns: reading the code of a program and its libraries so, and the remarks about that. Never touches: code that is not aligned.

use std::path::Path;

use heat::units::Bytes;
use hugepilot_os::stop::Stop;

use crate::cached_file::{CacheError, CachedFile, FileToCache};
use crate::program::CodeFile;
use crate::recipe::Remark;
use crate::request::WantText;

/// Reads the code of these files into the page cache on huge pages, as far as it is aligned for them, until a stop is requested. What a running
/// program maps stays as it is.
pub fn cache_code(files: &[CodeFile], want: WantText, stop: &Stop) -> Vec<Remark> {
    let mut all = CachedFile::default();
    let mut remarks = Vec::new();
    for file in files.iter().filter(|file| !file.aligned.is_empty()) {
        match cache_file(file, stop) {
            Ok(cached) => {
                all += cached;
                remarks.extend(base_pages(&file.path, &cached, want));
            }
            // The preload library has the kernel collapse its pages.
            Err(CacheError::InMemory { .. }) => {}
            Err(error) => {
                let is_of_machine = matches!(error, CacheError::NoHugePages | CacheError::NotTold { .. });
                remarks.push(Remark::note(format!("code: {error}")));
                if is_of_machine {
                    break;
                }
            }
        }
    }
    if all.whole > Bytes(0) {
        let (huge, whole) = (all.huge, all.whole);
        remarks.insert(0, Remark::note(format!("code: {huge} of {whole} is on huge pages in the page cache")));
    }
    remarks
}

fn cache_file(file: &CodeFile, stop: &Stop) -> Result<CachedFile, CacheError> {
    let to_cache = FileToCache::open(&file.path)?;
    let mut all = CachedFile::default();
    for part in &file.aligned {
        all += to_cache.read_part(part.clone(), stop, |_| ())?;
    }
    Ok(all)
}

/// Why code of a file is on base pages, and what helps.
fn base_pages(path: &Path, cached: &CachedFile, want: WantText) -> Vec<Remark> {
    let stop = "stop them, then run this again";
    let copy = "--text=copy copies it to private memory; profilers and debuggers then find no symbols";
    let reasons = [
        (cached.in_use, "because running programs map it on base pages", stop),
        (cached.untold, "perhaps because running programs map it, which only its owner and root are told", stop),
        (cached.refused, "because its file system has no large folios, or too little memory is contiguous", copy),
    ];
    let met = reasons.into_iter().filter(|(bytes, ..)| *bytes > Bytes(0));
    met.map(|(bytes, why, next_step)| {
        let what = |comes| format!("code: {bytes} of {} {comes}, {why}", path.display());
        match want {
            WantText::OrCopied => Remark::note(what("is copied")),
            WantText::OfFile | WantText::No => Remark::new(what("stays on base pages"), next_step),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn mib(number: u64) -> Bytes {
        Bytes(number << 20)
    }

    #[test]
    fn what_stays_on_base_pages_is_told_with_what_helps() {
        let cached = CachedFile { whole: mib(8), huge: mib(2), in_use: mib(4), refused: mib(2), untold: Bytes(0) };
        let remarks = |want| base_pages(Path::new("/bin/x"), &cached, want);
        let [in_use, refused] = &remarks(WantText::OfFile)[..] else { panic!("two reasons") };
        assert!(in_use.what.contains("4 MiB of /bin/x stays on base pages, because running programs"), "{in_use:?}");
        assert!(in_use.next_step.as_ref().is_some_and(|step| step.contains("stop them")));
        assert!(refused.next_step.as_ref().is_some_and(|step| step.contains("--text=copy")));
        let copied = remarks(WantText::OrCopied);
        assert!(copied[0].what.contains("is copied") && copied.iter().all(|remark| remark.next_step.is_none()));
        let huge = CachedFile { whole: mib(2), huge: mib(2), ..CachedFile::default() };
        assert_eq!(base_pages(Path::new("x"), &huge, WantText::OfFile), []);
    }

    #[test]
    fn code_is_read_as_far_as_it_is_aligned() {
        // Not in /tmp, which may be in memory.
        let folder = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = folder.path().join("program");
        fs::write(&path, vec![7; 6 << 20]).unwrap();
        let file = |aligned: &[_]| CodeFile { path: path.clone(), code: mib(6), aligned: aligned.to_vec() };
        let told = |file| cache_code(&[file], WantText::OfFile, &Stop::default());
        assert_eq!(told(file(&[])), []);
        let remarks = told(file(&[2 << 20..4 << 20, 4 << 20..6 << 20]));
        if remarks[0].what.contains("PAGEMAP_SCAN") {
            return eprintln!("skipped: the kernel does not tell what is on huge pages");
        }
        assert!(remarks[0].what.ends_with("of 4 MiB is on huge pages in the page cache"), "{remarks:?}");
        let missing = CodeFile { path: "/no/such/file".into(), ..file(&[0..2 << 20, 2 << 20..4 << 20]) };
        let remarks = told(missing);
        assert!(remarks.len() == 1 && remarks[0].what.contains("/no/such/file"), "{remarks:?}");
    }
}
