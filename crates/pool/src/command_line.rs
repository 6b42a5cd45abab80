//! Kernel parameters that reserve huge pages at boot.
//!
//! Owns: pairs `hugepagesz=1G hugepages=4` (Documentation/admin-guide/kernel-parameters.txt). Never touches: other parameters.

use heat::units::Bytes;
use kernel::hugetlb::size_name;

use crate::is_giant;

/// The parameters that reserve pages, by size: a number applies to the size before it.
pub(super) fn words(pools: &[(Bytes, u64)]) -> String {
    let pair = |(size, pages): &(Bytes, u64)| format!("hugepagesz={} hugepages={pages}", size_name(*size));
    pools.iter().map(pair).collect::<Vec<_>>().join(" ")
}

/// All parameters in a text that reserve giant pages, whoever wrote them. A number applies to the size before it, whatever is in
/// between.
pub(super) fn giants(text: &str) -> String {
    let mut found: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| is_command_line(line)) {
        let mut size = None;
        for word in line.split_ascii_whitespace() {
            if word.starts_with("hugepagesz=") {
                size = Some(word).filter(|word| is_of_giants(word));
            } else if word.starts_with("hugepages=") {
                found.extend(size.take().into_iter().flat_map(|size| [size, word]));
            }
        }
    }
    found.join(" ")
}

/// A file with a command line, such as `/etc/kernel/cmdline`: removes the `old` parameters, if present, and appends the `new` ones to
/// the last line. Everything else stays as it is.
pub(super) fn replaced(text: &str, old: &str, new: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let were_there = !old.is_empty() && take_out(&mut lines, old);
    if were_there && old == new {
        return text.to_owned();
    }
    if !new.is_empty() {
        append(&mut lines, new);
    }
    if lines.iter().eq(text.lines()) {
        return text.to_owned();
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Removes the last occurrence of these words, and the line if nothing else is in it; `false` if they never occur together.
fn take_out(lines: &mut Vec<String>, words: &str) -> bool {
    let mut command_lines = lines.iter().enumerate().rev().filter(|(_, line)| is_command_line(line));
    let found = command_lines.find_map(|(at, line)| Some((at, without(line, words)?)));
    let were_there = found.is_some();
    match found {
        Some((at, line)) if line.is_empty() => drop(lines.remove(at)),
        Some((at, line)) => lines[at] = line,
        None => {}
    }
    were_there
}

/// A line without these words; `None` if they do not occur in it as whole, consecutive words.
fn without(line: &str, words: &str) -> Option<String> {
    let sides = line.match_indices(words).map(|(at, _)| (&line[..at], &line[at + words.len()..]));
    let is_end = |next: Option<char>| next.is_none_or(char::is_whitespace);
    let whole = sides.filter(|(before, after)| is_end(before.chars().next_back()) && is_end(after.chars().next()));
    let (before, after) = whole.last()?;
    Some(format!("{before}{}", after.trim_start()).trim_end().to_owned())
}

fn append(lines: &mut Vec<String>, words: &str) {
    let at = lines.iter().rposition(|line| is_command_line(line)).unwrap_or_else(|| {
        lines.push(String::new());
        lines.len() - 1
    });
    let line = lines[at].trim_end();
    let space = if line.is_empty() { "" } else { " " };
    lines[at] = format!("{line}{space}{words}");
}

fn is_command_line(line: &str) -> bool {
    !line.trim().is_empty() && !line.trim_start().starts_with('#')
}

fn is_of_giants(word: &str) -> bool {
    let size = word.strip_prefix("hugepagesz=").and_then(|size| size.parse().ok());
    size.is_some_and(|size: Bytes| size.0.is_power_of_two() && is_giant(size))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FOUR: &str = "hugepagesz=1G hugepages=4";

    #[test]
    fn only_the_words_in_question_are_touched() {
        let text = "# why\nroot=/dev/sda1  ro hugepagesz=2M hugepages=9 quiet\n";
        let with = "# why\nroot=/dev/sda1  ro hugepagesz=2M hugepages=9 quiet hugepagesz=1G hugepages=4\n";
        assert_eq!(replaced(text, "", FOUR), with);
        assert_eq!(replaced(with, FOUR, "hugepagesz=1G hugepages=7"), with.replace("hugepages=4", "hugepages=7"));
        assert_eq!(replaced(with, FOUR, FOUR), with);
        assert_eq!(replaced(with, FOUR, ""), text);
        assert_eq!(replaced(text, FOUR, ""), text);
        assert_eq!(replaced("", "", FOUR), format!("{FOUR}\n"));
        assert_eq!(replaced(&format!("{FOUR}  ro"), FOUR, ""), "ro\n");
        assert_eq!(replaced("ro", FOUR, ""), "ro", "no line break is added where nothing changes");
    }

    #[test]
    fn what_somebody_has_changed_since_is_theirs() {
        for text in [
            "default_hugepagesz=1G hugepages=4\n",
            "hugepagesz=1G hugepages=48\n",
            "hugepagesz=1G quiet hugepages=4\n",
            "# hugepagesz=1G hugepages=4\n",
        ] {
            assert_eq!(replaced(text, FOUR, ""), text);
        }
    }

    #[test]
    fn a_number_counts_for_the_size_before_it() {
        for (text, found) in [
            ("ro hugepagesz=1G quiet hugepages=16 hugepages=5", "hugepagesz=1G hugepages=16"),
            (
                "hugepagesz=1G hugepages=0:2,1:2\nhugepagesz=16G hugepages=1",
                "hugepagesz=1G hugepages=0:2,1:2 hugepagesz=16G hugepages=1",
            ),
            ("hugepagesz=1G hugepagesz=2M hugepages=16", ""),
            ("default_hugepagesz=1G hugepages=4 hugepagesz=x hugepages=1", ""),
            ("# hugepagesz=1G hugepages=4", ""),
        ] {
            assert_eq!(giants(text), found, "{text}");
        }
        assert_eq!(giants(&words(&[(Bytes(1 << 30), 4)])), FOUR);
    }

    proptest! {
        #[test]
        fn what_was_put_in_is_taken_out(
            text in "((# )?(root=/a|quiet|hugepagesz=(1G|2M|1024M|16G|x)|hugepages=[0-9]{1,3})( {1,2}(ro|hugepages=7|hugepagesz=1G)){0,3}\n){0,3}",
            pages in 1..9u64,
        ) {
            let ours = words(&[(Bytes(1 << 30), pages)]);
            let once = replaced(&text, "", &ours);
            prop_assert_eq!(replaced(&once, &ours, &ours), once.clone());
            prop_assert_eq!(replaced(&once, &ours, ""), text);
            prop_assert!(giants(&once).ends_with(&ours));
        }
    }
}
