//! A program started on huge pages: what it is started with, and how much of its memory was huge.

use heat::units::Bytes;
use launch::Prepared;
use launch::counts::{InTheWay, PlacedText};
use launch::recipe::{ArgumentPlace, Insert, MemoryMechanism, Recipe, Remark, Variable};
use launch::verify::{By, NotHugeReason};
use pilot::words::{count, percent, printable, refusal};

use super::{joined, marked, sums};
use crate::report::LaunchReport;

/// Characters shown of a value; the user's own part of it may be long.
const SHOWN: usize = 300;

/// What a program is started with, each line marked as ours. What cannot work comes first.
pub fn recipe(prepared: &Prepared) -> String {
    let Recipe { obstacles, variables, arguments, named, left_to_pilot } = &prepared.recipe;
    let mut lines: Vec<String> = obstacles.iter().flat_map(remark).collect();
    lines.extend(
        variables.iter().map(|Variable { name, value, why, .. }| format!("{name}={}: {why}", printable(value, SHOWN))),
    );
    lines.extend(arguments.iter().map(|Insert { words, why, .. }| format!("with {}: {why}", words.join(" "))));
    lines.extend(named.iter().flat_map(remark));
    lines.extend(left_to_pilot.iter().map(|why| format!("left to the pilot: {why}")));
    marked(lines)
}

fn remark(remark: &Remark) -> impl Iterator<Item = String> {
    let next_step = remark.next_step.as_ref().map(|next_step| format!("next step: {next_step}"));
    std::iter::once(remark.what.clone()).chain(next_step)
}

/// The command that starts it, for a shell: `env` sets the variables for this program alone. A comment says why for each.
pub fn shell_command(prepared: &Prepared, command: &[String]) -> String {
    let why = |variable: &Variable| vec![comment(&format!("{}: {}", variable.name, variable.why))];
    let mut lines = reasons(prepared, &why);
    lines.push(comment("for a systemd unit, use --print=systemd"));
    let variables = prepared.recipe.variables.iter();
    let mut parts: Vec<String> =
        variables.map(|Variable { name, value, .. }| format!("{name}={}", quoted_for_shell(value))).collect();
    if !parts.is_empty() {
        parts.insert(0, "env".to_owned());
    }
    let words: Vec<String> = whole(prepared, command).iter().map(|word| quoted_for_shell(word)).collect();
    parts.push(words.join(" "));
    lines.push(parts.join(" \\\n    "));
    joined(lines)
}

/// The environment for a systemd unit (man 5 systemd.exec), with a comment for each line, and the command to run in it.
pub fn unit_environment(prepared: &Prepared, command: &[String]) -> String {
    let setting = |Variable { name, value, why, .. }: &Variable| {
        vec![comment(why), format!("Environment={}", quoted_for_unit(&format!("{name}={value}")))]
    };
    let mut lines = reasons(prepared, &setting);
    let mut words = whole(prepared, command);
    if let Some(program) = words.first_mut().filter(|_| prepared.program.script.is_none()) {
        // A unit does not search the PATH that was searched here.
        *program = prepared.program.path.display().to_string();
    }
    let words: Vec<String> = words.iter().map(|word| quoted_for_unit(word).replace('$', "$$")).collect();
    let start = format!("ExecStart={}", words.join(" "));
    if prepared.recipe.arguments.is_empty() {
        lines.push(comment(&start));
    } else {
        lines.push(comment("its arguments differ: the empty line takes the place of the unit's own command"));
        lines.extend(["ExecStart=".to_owned(), start]);
    }
    joined(lines)
}

fn comment(text: &str) -> String {
    format!("# {}", printable(text, usize::MAX))
}

/// Everything but the command: what cannot work, each variable, each argument, and what is left to others.
fn reasons(prepared: &Prepared, of_variable: &dyn Fn(&Variable) -> Vec<String>) -> Vec<String> {
    let recipe = &prepared.recipe;
    let mut lines: Vec<String> = recipe.obstacles.iter().flat_map(remark).map(|text| comment(&text)).collect();
    lines.extend(recipe.variables.iter().flat_map(of_variable));
    lines.extend(recipe.arguments.iter().map(|insert| {
        let place = if insert.place == ArgumentPlace::First { "first" } else { "last" };
        comment(&format!("with {} as the {place} arguments: {}", insert.words.join(" "), insert.why))
    }));
    lines.extend(recipe.named.iter().flat_map(remark).map(|text| comment(&text)));
    lines.extend(recipe.left_to_pilot.iter().map(|why| comment(&format!("only the pilot helps here: {why}"))));
    lines.extend(
        code_to_cache(prepared)
            .map(|command| comment(&format!("run this first, to put its code on huge pages: {command}"))),
    );
    lines
}

/// The command that reads its code into the page cache on huge pages, which `run` does by itself.
fn code_to_cache(prepared: &Prepared) -> Option<String> {
    let aligned = prepared.program.code.iter().filter(|file| !file.aligned.is_empty());
    let files: Vec<String> = aligned.map(|file| quoted_for_shell(&file.path.display().to_string())).collect();
    let is_placed = prepared.recipe.places_text() && !files.is_empty();
    is_placed.then(|| format!("hugepilot cache {}", files.join(" ")))
}

/// The command with the added arguments.
fn whole(prepared: &Prepared, command: &[String]) -> Vec<String> {
    let Some((program, arguments)) = command.split_first() else { return Vec::new() };
    let arguments = prepared.recipe.arguments_around(arguments.iter().cloned());
    std::iter::once(program.clone()).chain(arguments).collect()
}

/// Quoted unless it needs no quotes.
pub(crate) fn quoted_for_shell(word: &str) -> String {
    if is_plain(word) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Even within quotes a unit interprets backslashes and percent signs (man 5 systemd.syntax, systemd.unit).
fn quoted_for_unit(word: &str) -> String {
    if is_plain(word) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%").replace('\n', r"\n"))
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:,+=@".contains(c))
}

/// How much of the eligible memory was huge, by which mechanism, and why the rest was not; each line marked as ours.
pub fn account(report: &LaunchReport) -> String {
    let account = report.account;
    let sample = account.seen.largest;
    let mut lines = Vec::new();
    match account.percent() {
        None => lines.push(
            "no memory that could be huge was seen: there was less than a huge page, or it went too soon".to_owned(),
        ),
        Some(_) => {
            let sums = sums(sample.processes);
            // Smaller huge pages count beyond whole regions of 2 MiB, too.
            let could = sample.could.max(sample.huge());
            let share = percent(sample.huge().0 as f64, could.0 as f64);
            let from_pool = account.from_pool.map_or(String::new(), |bytes| format!(", {bytes} of it from the pool"));
            let by: Vec<String> = account.by.iter().map(|(by, bytes)| format!("{bytes} {}", who(by))).collect();
            let smaller = sample.smaller.filter(|smaller| *smaller > Bytes(0));
            let smaller = smaller.map_or(String::new(), |smaller| format!("; {smaller} of it on pages below 2 MiB"));
            let by = if by.is_empty() { String::new() } else { format!(": {}", by.join(", ")) };
            lines.push(format!(
                "of {could} that could be huge {} ({share}) was{from_pool}{sums}{by}{smaller}",
                sample.huge()
            ));
        }
    }
    if account.faults_saved() > 0 {
        lines
            .push(format!("huge from the first touch, they saved up to {} page faults", count(account.faults_saved())));
    }
    let lacking = sample.could.saturating_sub(sample.huge());
    if !account.rest.is_empty() {
        let reasons: Vec<String> = account.rest.iter().map(why).collect();
        lines.push(format!("the other {lacking}: {}", reasons.join("; ")));
        let is_off = account.rest.contains(&NotHugeReason::SwitchedOff);
        lines.extend(is_off.then(|| format!("echo madvise > /{}", report.prepared.machine.setting)));
    }
    lines.extend(account.text.map(|text| text_line(&text)));
    marked(lines)
}

fn text_line(text: &PlacedText) -> String {
    let PlacedText { eligible, of_file, copied } = *text;
    if eligible == Bytes(0) {
        return "code: none of the program, or of a library that it loads at its start, fills a huge page; what it loads later (dlopen) is on huge pages \
                where the page cache has it so: `hugepilot explain PID` says which library is not, and `hugepilot cache LIBRARY`, before the start, \
                puts it there"
            .to_owned();
    }
    let copied = if copied > Bytes(0) { format!(", {copied} copied to private ones") } else { String::new() };
    format!("code in whole 2 MiB, of all processes: {eligible}; {of_file} on huge pages of its files{copied}")
}

fn who(by: &By) -> String {
    match by {
        By::Recipe(mechanisms) => mechanisms.iter().map(mechanism).collect::<Vec<_>>().join(" or "),
        By::Pilot => "by the pilot".to_owned(),
        By::Itself => "by the program itself or the kernel".to_owned(),
    }
}

fn mechanism(mechanism: &MemoryMechanism) -> String {
    format!("{} ({})", mechanism.memory, mechanism.name)
}

fn why(reason: &NotHugeReason) -> String {
    match reason {
        NotHugeReason::SwitchedOff => "such transparent huge pages are switched off on this machine".to_owned(),
        NotHugeReason::SwitchedOffForItself(processes) => {
            format!("{processes} of its processes switched transparent huge pages off for themselves (PR_SET_THP_DISABLE); a pool's they may have")
        }
        NotHugeReason::NotSeen => "only root (CAP_SYS_ADMIN) sees what is on smaller huge pages".to_owned(),
        NotHugeReason::PoolEmpty => "the pool had nothing to give out when the program started".to_owned(),
        NotHugeReason::PoolUsedUp => "the pool had too few left; a larger one would serve more (hugepilot pool set)".to_owned(),
        NotHugeReason::Limited(group) => format!("control group {group} may have less of the pool than was wanted"),
        NotHugeReason::Hindered(in_the_way) => format!("the preload library could not place {}", hindrances(in_the_way)),
        NotHugeReason::NotReached(parts) => format!("only the pilot reaches it ({})", parts.join(", ")),
        NotHugeReason::Refused(reasons) => {
            let told: Vec<&str> = reasons.iter().map(|&reason| refusal(reason).0).collect();
            format!("the kernel refused the pilot ({})", told.join(", "))
        }
        NotHugeReason::NotPiloted => "only the pilot would reach it, and it did not run".to_owned(),
        NotHugeReason::Unknown => {
            "the reason is not known: memory that the lines at the start leave to the pilot stays on base pages where it is walked too little; so do pieces \
             too small for a huge page and, with glibc's malloc, the heap of other threads (GLIBC_TUNABLES=glibc.malloc.arena_max=1 lets all share one). \
             Next step: `hugepilot explain PID` while it runs says why for each mapping"
                .to_owned()
        }
    }
}

fn hindrances(in_the_way: &InTheWay) -> String {
    let InTheWay { pool_empty, too_small, address_space, refused, of_threads, fork_copies } = *in_the_way;
    let all = [
        (pool_empty, "because the pool had too few pages or a group's limit was reached"),
        (too_small, "because it was no whole page of the pool's"),
        (address_space, "for lack of address space (ulimit -v)"),
        (refused, "because the kernel refused"),
        (of_threads, "because it was a thread's, and small"),
        (fork_copies, "that was copied for children"),
    ];
    let met = all.into_iter().filter(|(bytes, _)| *bytes > Bytes(0));
    met.map(|(bytes, what)| format!("{bytes} {what}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::process::Command;

    use launch::program::CodeFile;
    use launch::recipe::Memory;
    use launch::verify::Verification;

    use super::*;
    use crate::report::samples::{account_of_a_search, prepared_search};

    #[test]
    fn a_start_is_told_line_by_line() {
        insta::assert_snapshot!(recipe(&prepared_search()));
    }

    #[test]
    fn an_environment_is_printed_with_its_reasons() {
        let command = ["search", "--index", "my index"].map(str::to_owned);
        insta::assert_snapshot!(shell_command(&prepared_search(), &command));
        insta::assert_snapshot!(unit_environment(&prepared_search(), &command));
    }

    #[test]
    fn an_account_names_who_did_what_and_why_the_rest_was_not() {
        let (prepared, account_of_it) = (prepared_search(), account_of_a_search());
        let told =
            |account_of_it: &Verification| account(&LaunchReport { prepared: &prepared, account: account_of_it });
        insta::assert_snapshot!(told(&account_of_it));
        let nothing = Verification {
            seen: Default::default(),
            from_pool: None,
            by: Vec::new(),
            rest: Vec::new(),
            required: Some(90.0),
            text: None,
        };
        let mut off = account_of_a_search();
        off.rest = vec![NotHugeReason::SwitchedOff];
        let remedy = format!("hugepilot: echo madvise > /{}\n", prepared.machine.setting);
        assert!(told(&off).contains(&remedy) && !told(&account_of_it).contains("echo"), "{}", told(&off));
        assert!(told(&nothing).starts_with("hugepilot: no memory that could be huge was seen"));
    }

    #[test]
    fn the_command_that_caches_code_is_printed() {
        let mut prepared = prepared_search();
        let by = MemoryMechanism { memory: Memory::Text, name: MemoryMechanism::PRELOAD, is_reserved: false };
        let of = |file: &str, aligned: &[Range<u64>]| CodeFile {
            path: file.into(),
            code: Bytes(8 << 20),
            aligned: aligned.to_vec(),
        };
        prepared.program.code = vec![of("/bin/a b", &[0..2 << 20, 2 << 20..4 << 20]), of("/lib/c", &[])];
        assert!(!shell_command(&prepared, &[]).contains("hugepilot cache"), "nothing is done to its code");
        let text = Variable { name: "HUGEPILOT_TEXT", value: "1".to_owned(), why: String::new(), by: Some(by) };
        prepared.recipe.variables.push(text);
        assert!(shell_command(&prepared, &[]).contains("huge pages: hugepilot cache '/bin/a b'\n"));
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for word in ["plain", "", "it's", "a b", "$HOME `x` \\ \"", "new\nline", "-XX:+UseLargePages -x"] {
            let script = format!("printf %s {}", quoted_for_shell(word));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_unit_gets_no_specifiers_by_accident() {
        assert_eq!(quoted_for_unit("A=50%ram \"x\" \\"), r#""A=50%%ram \"x\" \\""#);
        assert_eq!(quoted_for_unit("A=b:c"), "A=b:c");
    }

    #[test]
    fn a_shell_runs_the_printed_command_and_keeps_nothing_of_it() {
        let mut prepared = prepared_search();
        prepared.recipe.named.push(Remark { what: "evil\nexport PATH=/tmp".to_owned(), next_step: None });
        prepared.recipe.arguments.clear();
        let words = ["sh", "-c", "printf '%s|%s|' \"$GLIBC_TUNABLES\" \"$1\"", "sh", "x\nexport PATH=/tmp"];
        let printed = shell_command(&prepared, &words.map(str::to_owned));
        let script = format!("GLIBC_TUNABLES=\nPATH=$PATH:/mark\n{printed}\nprintf %s \"$GLIBC_TUNABLES$PATH\"");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let [tunables, word, after] = told.split('|').collect::<Vec<_>>()[..] else { panic!("{told}: {printed}") };
        assert!(tunables.contains("glibc.malloc.hugetlb="), "{printed}");
        assert_eq!(word, "x\nexport PATH=/tmp");
        assert!(after.ends_with(":/mark") && !after.contains("glibc"), "{after}");
    }
}
