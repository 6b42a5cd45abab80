//! The book in docs/ and the README: links lead somewhere, every chapter is in the contents, and each command that is shown is one.
//!
//! Owns: what holds for all chapters. Never touches: what they say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use daemon::args::DaemonArgs;
use hugepilot::cli::args::Cli;

/// Lines of a chapter.
const LONGEST: usize = 400;
/// Characters of a line that can be broken.
const WIDEST: usize = 120;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Documents beside the book.
const BESIDE: [&str; 7] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "integrations/README.md",
    "integrations/memcached/README.md",
    "python/README.md",
];

/// Every document, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found: Vec<PathBuf> = BESIDE.iter().map(|path| repository().join(path)).collect();
    let mut directories = vec![repository().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                Some(extension) if extension == "md" => found.push(path),
                _ if path.is_dir() => directories.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Its lines, each with whether it is code: indented by four, or between fences.
fn lines(text: &str) -> Vec<(bool, &str)> {
    let mut fenced = false;
    let line = |line| {
        let is_fence = str::starts_with(line, "```");
        fenced ^= is_fence;
        (fenced || is_fence || line.starts_with("    "), line)
    };
    text.lines().map(line).collect()
}

/// The targets of its links.
fn links(text: &str) -> Vec<String> {
    let prose: Vec<&str> = lines(text).into_iter().filter(|(code, _)| !code).map(|(_, line)| line).collect();
    let prose = prose.join(" ");
    prose.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// What a link to a heading is called.
fn anchors(text: &str) -> BTreeSet<String> {
    let heading = |(code, line): (bool, &str)| (!code && line.starts_with('#')).then(|| anchor(line));
    lines(text).into_iter().filter_map(heading).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|&each| each.is_alphanumeric() || " -_".contains(each));
    kept.map(|each| if each == ' ' { '-' } else { each }).collect()
}

#[test]
fn links_lead_somewhere() {
    let (mut checked, mut dead) = (0, Vec::new());
    for (path, text) in documents() {
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            if !target.exists() {
                dead.push(format!("{}: {link}", path.display()));
            } else if !heading.is_empty() {
                let headings = anchors(&fs::read_to_string(&target).unwrap());
                if !headings.contains(heading) {
                    dead.push(format!("{}: {link} is none of {headings:?}", path.display()));
                }
            }
            checked += 1;
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
    assert!(checked > 200, "{checked}");
}

#[test]
fn every_chapter_is_in_the_contents() {
    let docs = repository().join("docs");
    let contents: BTreeSet<PathBuf> =
        links(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap()).iter().map(|link| docs.join(link)).collect();
    let chapters = documents().into_iter().map(|(path, _)| path);
    let chapters: BTreeSet<PathBuf> =
        chapters.filter(|path| path.starts_with(&docs) && !path.ends_with("SUMMARY.md")).collect();
    assert_eq!(contents, chapters);
}

#[test]
fn chapters_are_short_and_their_lines_fit_a_screen() {
    let mut wide = Vec::new();
    for (path, text) in documents() {
        let path = path.display();
        assert!(text.lines().count() <= LONGEST, "{path} has {} lines", text.lines().count());
        let can_be_broken = |line: &str| {
            let first = line.trim_start().split([' ', '.']).next().unwrap_or_default();
            let is_of_a_table =
                line.starts_with('|') || (!first.is_empty() && first.bytes().all(|each| each.is_ascii_digit()));
            !is_of_a_table && !line.starts_with("![") && !line.starts_with("From [") && line.trim().contains(' ')
        };
        for (_, line) in lines(&text).into_iter().filter(|(code, line)| !code && can_be_broken(line)) {
            wide.extend((line.chars().count() > WIDEST).then(|| format!("{path}: {line}")));
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

/// Commands as they are typed: `hugepilot ..` at the beginning of a line of code.
#[test]
fn commands_that_are_shown_are_understood() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        for (_, line) in lines(&text).into_iter().filter(|(code, _)| *code) {
            let Some(typed) = line.trim_start().strip_prefix("hugepilot ") else { continue };
            let words = words(typed);
            // A table that a command printed may begin so, too.
            if words.is_empty() {
                continue;
            }
            let parsed = Cli::try_parse_from(std::iter::once("hugepilot".to_owned()).chain(words.clone()));
            let answer = parsed.map(drop).or_else(|error| match error.kind() {
                clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion => Ok(()),
                _ => Err(error),
            });
            wrong.extend(answer.err().map(|error| format!("{}: {line}: {}", path.display(), error.kind())));
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 60, "{checked}");
}

#[test]
fn the_daemon_is_started_as_it_can_be() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        for (_, line) in lines(&text).into_iter().filter(|(code, _)| *code) {
            let Some(typed) = line.trim_start().strip_prefix("hugepilotd") else { continue };
            let words = std::iter::once("hugepilotd".to_owned()).chain(words(typed.trim_start()));
            wrong.extend(
                DaemonArgs::try_parse_from(words).err().map(|error| format!("{}: {line}: {error}", path.display())),
            );
            checked += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 0);
}

/// `make ..`, in code and between backticks.
#[test]
fn every_target_of_make_that_is_named_is_one() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let targets: BTreeSet<&str> =
        makefile.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    let (mut checked, mut unknown) = (0, Vec::new());
    for (path, text) in documents() {
        let typed = lines(&text).into_iter().filter(|(code, _)| *code).map(|(_, line)| line.trim_start());
        let quoted = text.split('`').skip(1).step_by(2);
        for command in typed.chain(quoted).filter_map(|command| command.strip_prefix("make ")) {
            let is_name = |word: &&str| word.bytes().all(|each| each.is_ascii_lowercase() || each == b'-');
            let Some(target) = command.split_whitespace().next().filter(is_name) else { continue };
            unknown.extend((!targets.contains(target)).then(|| format!("{}: make {target}", path.display())));
            checked += 1;
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(checked > 20, "{checked}");
}

/// The words of a command without what follows it: a remark after `#`, so that the line can be copied whole, a pipe, a redirection. None of a table.
fn words(typed: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut spaces) = (Vec::new(), String::new(), None, 0);
    let mut rest = typed.chars();
    while let Some(each) = rest.next() {
        match (quote, each) {
            (Some('"'), '\\') => word.extend(rest.next()),
            (None, '|' | '>' | '#') if word.is_empty() => break,
            (None, ' ') if spaces == 1 && words.iter().all(String::is_empty) && word.is_empty() => break,
            (None, ' ') => {
                spaces += 1;
                words.push(std::mem::take(&mut word));
            }
            (None, '\'' | '"') => (quote, spaces) = (Some(each), 0),
            (Some(open), _) if open == each => quote = None,
            _ => {
                spaces = 0;
                word.push(each);
            }
        }
    }
    words.push(word);
    let placeholder = |word: String| match word.as_str() {
        "PID" => "4242".to_owned(),
        "PATH..." | "PATH.." => "/path".to_owned(),
        _ => word,
    };
    words.into_iter().filter(|word| !word.is_empty()).map(placeholder).collect()
}

#[test]
fn a_command_ends_where_a_remark_begins() {
    assert_eq!(words("heat PID --for 1m          # for a minute"), ["heat", "4242", "--for", "1m"]);
    assert_eq!(words("heat PID        hot pages")[2..], ["hot", "pages"], "which no shell would take for a remark");
    assert!(words("   12.5 %  3 GiB").is_empty());
    assert_eq!(words("heat PID --json | jq '.a'"), ["heat", "4242", "--json"]);
    assert_eq!(words("trial --rate \"a | b 'c'\" x"), ["trial", "--rate", "a | b 'c'", "x"]);
}
