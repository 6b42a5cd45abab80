//! `cache`: files that programs map, in the page cache on huge pages.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hugepilot_os::file_cache::drop_clean;
use rustix::fs::{Advice, fadvise};
use serde_json::Value;

use crate::support::{Program, hugepilot, list, number, wait_until};

crate::trials!(a_mapped_file_comes_on_huge_pages, what_is_not_cached_is_told);

const MIB: u64 = 1 << 20;
const SIZE: u64 = 32 * MIB;

/// A directory on a disk, even where /tmp is in memory: next to this binary, or where the emulated machine has a disk.
fn directory() -> tempfile::TempDir {
    let binary = std::env::current_exe().expect("our own path");
    let disk = std::env::var("HUGEPILOT_DISK").map(PathBuf::from);
    tempfile::tempdir_in(disk.unwrap_or_else(|_| binary.parent().expect("a directory").to_owned())).expect("room")
}

/// A file in the page cache as reads at random addresses bring it there.
fn on_base_pages(path: &Path) {
    fs::write(path, vec![7; SIZE as usize]).expect("room");
    let file = File::open(path).expect("just written");
    file.sync_all().expect("a disk");
    drop_clean(&file, 0, 0).expect("a file");
    fadvise(&file, 0, None, Advice::Random).expect("a file");
    (0..SIZE / 4096).for_each(|page| file.read_exact_at(&mut [0], page * 4096).expect("it has so many pages"));
}

/// What `explain` says of a program's mapping of a file.
fn explained(program: &Program, path: &Path) -> Value {
    let json = hugepilot(&format!("explain {} --window 200ms --json", program.pid)).json();
    let of_file = list(&json, "mappings").iter().find(|mapping| mapping["name"].as_str() == path.to_str());
    of_file.unwrap_or_else(|| panic!("{json}")).clone()
}

fn cached(words: &str, path: &Path) -> Value {
    let json = hugepilot(&format!("cache {words} {} --json", path.display())).json();
    list(&json, "files")[0].clone()
}

fn a_mapped_file_comes_on_huge_pages() {
    let directory = directory();
    let path: PathBuf = directory.path().join("index");
    on_base_pages(&path);
    let reader = Program::start(&format!("view={} ready sleep=3600s", path.display()));
    let on_base = explained(&reader, &path);
    assert_eq!(
        (number(&on_base, "huge_bytes"), on_base["not_huge_bytes"]["read_only_file"].as_u64()),
        (0, Some(SIZE)),
        "{on_base}"
    );
    let text = hugepilot(&format!("explain {} --window 200ms", reader.pid)).stdout;
    let command = format!("`hugepilot cache {}`", path.display());
    assert!(text.contains(&command) && text.contains("after a restart"), "{text}");
    let ran = hugepilot(&format!("cache {}", path.display()));
    // The emulated machine has a disk only with a kernel that collapses files.
    if ran.status.success() || std::env::var_os("HUGEPILOT_DISK").is_some() {
        assert!(ran.stdout.contains("32 MiB of 32 MiB on huge pages (100.0 %)"), "{ran:?}");
        let collapsed = explained(&reader, &path);
        return assert_eq!(number(&collapsed, "huge_bytes"), SIZE, "beneath the program: {collapsed}");
    }
    ran.assert_fails_with(&["no huge page was obtained"]);
    assert!(
        ran.stdout.contains("32 MiB stay on base pages, which a program maps"),
        "the kernel cannot replace them: {ran:?}"
    );
    drop(reader);
    let ran = hugepilot(&format!("cache {}", path.display()));
    if ran.stdout.contains("no large folios") {
        ran.assert_fails_with(&["no huge page was obtained"]);
        return eprintln!("not tested: {} is on a file system without large folios", path.display());
    }
    assert!(ran.status.success() && ran.stdout.contains("32 MiB of 32 MiB on huge pages (100.0 %)"), "{ran:?}");
    let reader = Program::start(&format!("view={} ready sleep=3600s", path.display()));
    wait_until("all of it is mapped by huge pages", || number(&explained(&reader, &path), "huge_bytes") == SIZE);
    assert_eq!(number(&cached("--drop", &path), "stays_bytes"), SIZE, "it is mapped");
    drop(reader);
    assert_eq!(number(&cached("--drop", &path), "stays_bytes"), 0);
    assert!(fs::read(&path).expect("still there").iter().all(|&byte| byte == 7));
}

fn what_is_not_cached_is_told() {
    let directory = directory();
    let at = |name: &str, bytes: u64| {
        let path = directory.path().join(name);
        fs::write(&path, vec![7; bytes as usize]).expect("room");
        path
    };
    let (written, small) = (at("written", 4 * MIB), at("small", MIB));
    let _writer = File::options().write(true).open(&written).expect("it is ours");
    let written = format!("cache {}", written.display());
    hugepilot(&written).assert_fails_with(&["1 of 1 files were left as they are"]);
    assert!(hugepilot(&written).stdout.contains("is open for writing"));
    assert!(hugepilot(&format!("cache {}", small.display())).stdout.contains("less than 2 MiB"));
    fs::remove_file(directory.path().join("written")).expect("it is ours");
    hugepilot(&format!("cache {}", directory.path().display())).assert_fails_with(&["no file of at least 2 MiB"]);
    hugepilot("cache /nowhere").assert_fails_with(&["/nowhere", "No such file"]);
}
