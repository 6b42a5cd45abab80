//! The words on the kernel's command line that reserve huge pages at boot.
//!
//! Owns: pairs `hugepagesz=1G hugepages=4` (Documentation/admin-guide/kernel-parameters.txt). Never touches: other words.

use super::is_giant;
use crate::kernel::hugetlb::size_name;
use crate::units::Bytes;

/// The words that reserve pages, by size: the number counts for the size before it.
pub(super) fn words(pools: &[(Bytes, u64)]) -> String {
    let pair = |(size, pages): &(Bytes, u64)| format!("hugepagesz={} hugepages={pages}", size_name(*size));
    pools.iter().map(pair).collect::<Vec<_>>().join(" ")
}

/// A file with a command line, such as `/etc/kernel/cmdline`, in which giant pages are reserved as told and not otherwise. Everything
/// else stays as it is; words go to the end of the last line.
pub(super) fn with_pools(text: &str, pools: &[(Bytes, u64)]) -> String {
    let mut lines: Vec<String> = text.lines().filter_map(without_giants).collect();
    if !pools.is_empty() {
        let at = lines.iter().rposition(|line| is_command_line(line)).unwrap_or_else(|| {
            lines.push(String::new());
            lines.len() - 1
        });
        let line = lines[at].trim_end();
        let space = if line.is_empty() { "" } else { " " };
        lines[at] = format!("{line}{space}{}", words(pools));
    }
    if lines.iter().eq(text.lines()) {
        return text.to_owned();
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn is_command_line(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

/// A line without its pairs that reserve giant pages; `None` if nothing else is in it. One without such pairs stays as it is.
fn without_giants(line: &str) -> Option<String> {
    if !is_command_line(line) {
        return Some(line.to_owned());
    }
    let (mut kept, mut after_giant, mut is_dropped) = (String::new(), false, false);
    for piece in line.split_inclusive([' ', '\t']) {
        let word = piece.trim_end();
        // More spaces than one belong to the word before them.
        if !word.is_empty() {
            let is_count = after_giant && word.starts_with("hugepages=");
            after_giant = reserves_giants(word);
            is_dropped = is_count || after_giant;
        }
        if !is_dropped {
            kept.push_str(piece);
        }
    }
    match kept.len() == line.len() {
        true => Some(kept),
        false => Some(kept.trim_end().to_owned()).filter(|kept| !kept.is_empty()),
    }
}

fn reserves_giants(word: &str) -> bool {
    let size = word.strip_prefix("hugepagesz=").and_then(|size| size.parse().ok());
    size.is_some_and(|size: Bytes| size.0.is_power_of_two() && is_giant(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FOUR: (Bytes, u64) = (Bytes(1 << 30), 4);

    #[test]
    fn only_giant_pages_are_touched() {
        let text = "# why\nroot=/dev/sda1  ro hugepagesz=2M hugepages=9 quiet\n";
        let with = "# why\nroot=/dev/sda1  ro hugepagesz=2M hugepages=9 quiet hugepagesz=1G hugepages=4\n";
        assert_eq!(with_pools(text, &[FOUR]), with);
        assert_eq!(with_pools(with, &[(Bytes(1 << 30), 7)]), with.replace("hugepages=4", "hugepages=7"));
        assert_eq!(with_pools(with, &[]), text);
        assert_eq!(with_pools(text, &[]), text);
        assert_eq!(with_pools("", &[FOUR]), "hugepagesz=1G hugepages=4\n");
        assert_eq!(with_pools("hugepagesz=16G  hugepages=1 ro", &[]), "ro\n");
        assert_eq!(with_pools("ro", &[]), "ro", "no line break is added where nothing changes");
        assert_eq!(with_pools("default_hugepagesz=1G hugepages=4\n", &[]), "default_hugepagesz=1G hugepages=4\n");
    }

    proptest! {
        #[test]
        fn doing_it_twice_changes_nothing_more(
            text in "((# )?(root=/a|quiet|hugepagesz=(1G|2M|1024M|16G|x)|hugepages=[0-9]{1,3})( {1,2}(ro|hugepages=7|hugepagesz=1G)){0,3}\n){0,3}",
            pages in prop::option::of(1..9u64),
        ) {
            let pools: Vec<(Bytes, u64)> = pages.map(|pages| (Bytes(1 << 30), pages)).into_iter().collect();
            let once = with_pools(&text, &pools);
            prop_assert_eq!(with_pools(&once, &pools), once.clone());
            prop_assert_eq!(with_pools(&once, &[]), with_pools(&text, &[]));
            prop_assert!(pools.is_empty() || once.contains(&words(&pools)));
            let others = |text: &str| text.matches("quiet").count() + text.matches("root=").count() + text.matches("=2M").count();
            prop_assert_eq!(others(&once), others(&text));
        }
    }
}
