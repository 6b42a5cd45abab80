//! Addresses of the kernel's symbols, from `/proc/kallsyms`.
//!
//! Owns: the search in that file. Never touches: kernel memory.

use std::io::{self, BufRead};

use heat::units::Bytes;

use crate::Root;

/// The bound on the file; kernels print 5 to 15 MiB.
const LIMIT: Bytes = Bytes(256 << 20);

/// The address of one symbol. `None` means unknown: the kernel does not list it, shows zeros to readers without CAP_SYSLOG or under `kptr_restrict`,
/// or the file cannot be read.
pub fn address_of(root: &Root, symbol: &str) -> Option<u64> {
    find(root.stream("proc/kallsyms", LIMIT).ok()?, symbol).ok().flatten().filter(|&address| address != 0)
}

/// Whether the kernel proper has a symbol, even if its address is hidden. `None` means unknown: the file is missing, or lists nothing.
pub fn lists(root: &Root, symbol: &str) -> Option<bool> {
    let found = |symbol| find(root.stream("proc/kallsyms", LIMIT).ok()?, symbol).ok();
    match found(symbol)? {
        Some(_) => Some(true),
        None => found("_stext")?.map(|_| false),
    }
}

/// Searches for a symbol of the kernel proper (not of a module) in the text of `kallsyms`; its address is 0 if hidden.
///
/// Errors: `text` cannot be read.
pub fn find(mut text: impl BufRead, symbol: &str) -> io::Result<Option<u64>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::Read::take(&mut text, LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        // A few bytes rule out nearly all other lines, of some 150,000; lines of modules end in the module's name in brackets.
        if !line.trim_ascii_end().ends_with(symbol.as_bytes()) {
            continue;
        }
        if let Some(address) = std::str::from_utf8(&line).ok().and_then(|line| parse_line(line, symbol)) {
            return Ok(Some(address));
        }
    }
}

/// The bound on a line: symbol names are at most 512 bytes (`KSYM_NAME_LEN`).
const LINE: u64 = 1 << 10;

/// `ffffffff81000000 T _stext`.
fn parse_line(line: &str, symbol: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let (address, _kind, name) = (words.next()?, words.next()?, words.next()?);
    (name == symbol).then(|| u64::from_str_radix(address, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff82a1b2c8 D my_page_offset_base\n\
                        ffffffffc0001000 d page_offset_base\t[module]\nffffffff82a1b2d0 D page_offset_base\n\
                        0000000000000000 A hidden\n";

    #[test]
    fn only_the_very_symbol_is_found() {
        let find = |symbol| find(TEXT.as_bytes(), symbol).unwrap();
        assert_eq!(find("page_offset_base"), Some(0xffffffff82a1b2d0));
        assert_eq!(find("_stext"), Some(0xffffffff81000000));
        assert_eq!(find("offset_base"), None);
        assert_eq!(find("hidden"), Some(0), "zeros are shown to those who may not know");
        assert_eq!(find("init_mm"), None);
    }

    #[test]
    fn an_absent_file_is_unknown() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!((address_of(&root, "_stext"), lists(&root, "_stext")), (None, None));
        std::fs::create_dir(tree.path().join("proc")).unwrap();
        std::fs::write(tree.path().join("proc/kallsyms"), TEXT).unwrap();
        assert_eq!((address_of(&root, "hidden"), lists(&root, "hidden")), (None, Some(true)));
        assert_eq!(lists(&root, "damon_va_check_accesses"), Some(false));
        std::fs::write(tree.path().join("proc/kallsyms"), "").unwrap();
        assert_eq!(lists(&root, "hidden"), None, "nothing is listed");
    }

    proptest! {
        #[test]
        fn any_text_is_searched(text in "([0-9a-f]{0,17} [A-Za-z] [a-c]{0,2}\n|.{0,20}\n){0,8}", symbol in "[a-c]{0,2}") {
            let _ = find(text.as_bytes(), &symbol).unwrap();
        }
    }
}
