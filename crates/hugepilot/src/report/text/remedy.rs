//! What can be done about memory that its mapping keeps on base pages.
//!
//! Owns: the next step of each reason, with the file's path in it. Never touches: whether it would help.

use heat::units::{Bytes, HUGE_PAGE};
use heat::{Mapping, Obstacle};
use pilot::explain::Why;

use crate::report::scan_words::{IN_CONTAINER, cache_command};

/// The next step for memory of a mapping that is on base pages for this reason. None: there is none, or the reason itself says it. `collapses_files`:
/// whether the kernel can replace pages of a file beneath the program that maps them; None if that is not known.
pub fn remedy(why: Why, mapping: &Mapping, collapses_files: Option<bool>) -> Option<String> {
    let Why::Obstacle(obstacle) = why else { return None };
    let step = match obstacle {
        Obstacle::NoHugePage => {
            "only the program can allow them: without madvise(MADV_NOHUGEPAGE), or by its allocator's setting (jemalloc: `thp:default` for `thp:never`)"
        }
        Obstacle::ReadOnlyFile => return Some(cache(&mapping.name, collapses_files)),
        Obstacle::File if mapping.shared.is_none() => {
            let cached = cache(&mapping.name, collapses_files);
            return Some(format!(
                "{cached}; the mapping is private, and pages that the program writes to are copied to base pages"
            ));
        }
        Obstacle::File => {
            "if it only reads: let it open the file read-only and map it PROT_READ, so that `hugepilot cache` serves it; or let it read the file \
             into memory of its own, which `hugepilot promote` serves"
        }
        Obstacle::FileOpenForWriting => {
            "nothing can be done while it is open for writing, also by another process; where all open it read-only (LMDB: MDB_RDONLY), \
             `hugepilot cache` serves it"
        }
        Obstacle::FileMisaligned if mapping.range.len() < Bytes(HUGE_PAGE) => return None,
        Obstacle::FileMisaligned if mapping.executable => {
            "link it with -Wl,-z,max-page-size=0x200000; or `hugepilot run --text=copy` copies its code, where perf and gdb find no symbols"
        }
        Obstacle::FileMisaligned => {
            "let the program map it at an address of the kernel's choice, from an offset that is a multiple of 2 MiB, so that `hugepilot cache` serves it"
        }
        Obstacle::Stack | Obstacle::Hugetlb | Obstacle::Special | Obstacle::Misaligned | Obstacle::Split => {
            return None;
        }
    };
    Some(step.to_owned())
}

fn cache(file: &str, collapses_files: Option<bool>) -> String {
    let Some(command) = cache_command(file) else {
        return "the file is deleted: once the program maps its successor, `hugepilot explain` names the command for that".to_owned();
    };
    let when =
        if collapses_files == Some(true) { "also while the program runs," } else { "before the program starts," };
    format!("`{command}`, {when} may put it on huge pages ({IN_CONTAINER})")
}

#[cfg(test)]
mod tests {
    use heat::samples::mixed_heat;
    use heat::{Object, Shared};

    use super::*;

    fn of(obstacle: Obstacle, name: &str, collapses_files: Option<bool>) -> String {
        let object = Object { device: (8, 1), inode: 7, ipc_namespace: None };
        let shared = Some(Shared { object, offset: 0 });
        let mapping = Mapping { name: name.to_owned(), shared, ..mixed_heat().mappings[0].clone() };
        remedy(Why::Obstacle(obstacle), &mapping, collapses_files).unwrap_or_default()
    }

    #[test]
    fn the_command_names_the_file_and_the_time() {
        let path = "/srv/an index/segment.bin";
        let told = of(Obstacle::ReadOnlyFile, path, Some(false));
        assert!(
            told.starts_with("`hugepilot cache '/srv/an index/segment.bin'`, before the program starts,"),
            "{told}"
        );
        assert!(told.contains("the path is the container's"), "{told}");
        assert_eq!(of(Obstacle::ReadOnlyFile, path, None), told);
        let told = of(Obstacle::ReadOnlyFile, path, Some(true));
        assert!(told.contains("also while the program runs") && !told.contains("before"), "{told}");
        let told = of(Obstacle::ReadOnlyFile, "/srv/index (deleted)", None);
        assert!(!told.contains("hugepilot cache"), "{told}");
    }

    #[test]
    fn a_private_mapping_is_served_as_long_as_it_is_only_read() {
        let private = Mapping { name: "/srv/index".to_owned(), shared: None, ..mixed_heat().mappings[0].clone() };
        let told = remedy(Why::Obstacle(Obstacle::File), &private, None).unwrap();
        assert!(told.starts_with("`hugepilot cache /srv/index`, before") && told.contains("are copied"), "{told}");
    }

    #[test]
    fn each_reason_of_a_file_has_a_remedy_of_its_own() {
        let told = [Obstacle::File, Obstacle::FileOpenForWriting, Obstacle::FileMisaligned, Obstacle::NoHugePage]
            .map(|obstacle| of(obstacle, "/srv/index", None));
        for (told, part) in told.iter().zip(["PROT_READ", "MDB_RDONLY", "of the kernel's choice", "MADV_NOHUGEPAGE"]) {
            assert!(told.contains(part), "{told}");
        }
        let code = Mapping { executable: true, ..mixed_heat().mappings[0].clone() };
        let told = remedy(Why::Obstacle(Obstacle::FileMisaligned), &code, None).unwrap();
        assert!(told.contains("max-page-size") && told.contains("--text=copy"), "{told}");
        assert_eq!(remedy(Why::NotYet, &code, None), None);
    }
}
