//! Man pages and completions, generated from the command line: every command has a page, each page is well-formed and has the examples of the help,
//! and shells understand the completions. A tool that the machine lacks is reported, not silently skipped.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::{fs, io};

use clap::CommandFactory;
use daemon::args::DaemonArgs;
use daemon::config::Config;
use hugepilot::cli::args::Cli;
use tempfile::TempDir;

const HPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hps/man/hps.3");

fn manual() -> TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let made = Command::new(env!("CARGO_BIN_EXE_hugepilot-manual")).arg(folder.path()).output().expect("it starts");
    assert!(made.status.success(), "{made:?}");
    folder
}

/// A command and its subcommands, each with the name of its page: `hugepilot-heat`.
fn with_subcommands(name: &str, command: &clap::Command) -> Vec<(String, clap::Command)> {
    let shown = command.get_subcommands();
    let below = shown.flat_map(|below| with_subcommands(&format!("{name}-{}", below.get_name()), below));
    std::iter::once((name.to_owned(), command.clone())).chain(below).collect()
}

/// Every command, with the manual section of its page.
fn commands() -> Vec<(String, u32, clap::Command)> {
    let of_program = |name: &str, section, program: clap::Command| {
        with_subcommands(name, &program).into_iter().map(move |(name, command)| (name, section, command))
    };
    let daemon = of_program("hugepilotd", 8, DaemonArgs::command());
    of_program("hugepilot", 1, Cli::command()).chain(daemon).collect()
}

/// The output of a program that succeeds; None, with a message, if it is not installed.
fn output(command: &mut Command) -> Option<Output> {
    let program = command.get_program().to_owned();
    match command.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            eprintln!("skipped: {} is not installed", program.display());
            None
        }
        output => {
            let output = output.expect("it starts");
            assert!(output.status.success(), "{command:?}: {output:?}");
            Some(output)
        }
    }
}

/// A page as a terminal shows it, with lines too long to be wrapped and single spaces. None without groff.
fn rendered(page: &Path) -> Option<String> {
    let options = ["-man", "-Tascii", "-ww", "-rLL=900n", "-rHY=0", "-P-cbou"];
    let output = output(Command::new("groff").args(options).arg(page))?;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", page.display());
    Some(single_spaces(&String::from_utf8(output.stdout).expect("it was asked for ASCII")))
}

fn single_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_command_has_its_page_and_nothing_else_has() {
    let folder = manual();
    let pages = ["man1", "man5", "man8"]
        .map(|section| fs::read_dir(folder.path().join(section)).unwrap())
        .into_iter()
        .flatten();
    let pages: BTreeSet<String> = pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let mut expected: BTreeSet<String> =
        commands().into_iter().map(|(name, section, _)| format!("{name}.{section}")).collect();
    expected.insert("hugepilot.toml.5".to_owned());
    assert_eq!(pages, expected);
    assert!(pages.contains("hugepilot.1") && pages.contains("hugepilot-give-back.1"), "{pages:?}");
}

#[test]
fn pages_have_their_sections() {
    let folder = manual();
    for (name, section, command) in commands() {
        let page = fs::read_to_string(folder.path().join(format!("man{section}/{name}.{section}"))).unwrap();
        assert!(page.contains(&format!("\n.TH {name} {section} ")), "{page}");
        let mut sections = vec!["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"];
        sections.extend(command.has_subcommands().then_some("SUBCOMMANDS"));
        sections.extend(command.get_after_help().map(|_| "EXAMPLES"));
        sections.extend(["FILES", "ENVIRONMENT", "\"EXIT STATUS\"", "\"SEE ALSO\""]);
        let mut rest = page.as_str();
        for section in sections {
            let (_, after) =
                rest.split_once(&format!("\n.SH {section}\n")).unwrap_or_else(|| panic!("{section}: {page}"));
            rest = after;
        }
    }
}

#[test]
fn pages_are_well_formed_and_say_what_the_help_says() {
    let folder = manual();
    for (name, section, command) in commands() {
        let Some(page) = rendered(&folder.path().join(format!("man{section}/{name}.{section}"))) else { return };
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines().filter(|line| *line != "Examples:") {
            assert!(page.contains(&single_spaces(line)), "{name} lacks '{line}':\n{page}");
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && page.contains(&format!("{name} - {}", single_spaces(&about))), "{page}");
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            let long = option.get_long().map(|long| format!("--{long}")).unwrap_or_default();
            assert!(page.contains(&long), "{name} lacks {long}");
        }
    }
    rendered(Path::new(HPS)).expect("groff is there");
    let page = rendered(&folder.path().join("man5/hugepilot.toml.5")).expect("groff is there");
    for line in Config::COMMENTED.lines() {
        assert!(page.contains(&single_spaces(line)), "hugepilot.toml(5) lacks '{line}':\n{page}");
    }
}

#[test]
fn pages_say_what_the_exit_status_of_their_command_means() {
    let folder = manual();
    for (page, words, status, meaning) in [
        ("hugepilot-doctor", "doctor", 0, "whatever is missing"),
        ("hugepilot-config", "config", 0, "was printed"),
        ("hugepilot-config", "config --check /no/such/file", 1, "or cannot be read"),
        ("hugepilot-status", "status --socket /no/such/socket", 1, "No daemon answers"),
        ("hugepilot-replay", "replay /no/such/file", 1, "could not be read"),
        ("hugepilot-run", "run --pages thp -- sh -c exit\u{a0}7", 7, "The program\\*(Aqs own."),
        ("hugepilot-pool-set", "pool set", 2, "Wrong usage"),
    ] {
        let words = words.split(' ').map(|word| word.replace('\u{a0}', " "));
        let ran = Command::new(env!("CARGO_BIN_EXE_hugepilot")).args(words).output().expect("it starts");
        assert_eq!(ran.status.code(), Some(status), "{page}: {ran:?}");
        let text = fs::read_to_string(folder.path().join(format!("man1/{page}.1"))).unwrap();
        let (_, told) = text.split_once("\n.SH \"EXIT STATUS\"\n").expect("every page has it");
        assert!(told.contains(&format!("\n\\fB{status}\\fR\n")) || status == 7, "{told}");
        assert!(told.contains(meaning), "{told}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = manual();
    let completed = |typed: &[&str]| -> Option<BTreeSet<String>> {
        let script = r#"source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            _clap_complete_hugepilot hugepilot "${@: -1}" "${@: -2:1}"; printf '%s\n' "${COMPREPLY[@]}""#;
        let file = folder.path().join("completions/hugepilot.bash");
        let programs = Path::new(env!("CARGO_BIN_EXE_hugepilot")).parent().expect("it is in a directory");
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", script, "bash"]).arg(file).args(typed).env("PATH", path);
        let output = output(&mut bash)?;
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        Some(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    };
    let Some(offered) = completed(&["hugepilot", ""]) else { return };
    for command in Cli::command().get_subcommands() {
        assert!(offered.contains(command.get_name()), "{offered:?} lacks {}", command.get_name());
    }
    let options = completed(&["hugepilot", "heat", "--al"]).expect("bash is there");
    assert_eq!(options, BTreeSet::from(["--allow-stall".to_owned()]));
}

#[test]
fn zsh_and_fish_understand_their_completions() {
    let folder = manual();
    for (shell, file, words) in [
        ("zsh", "_hugepilot", ["COMPLETE=zsh hugepilot"]),
        ("fish", "hugepilot.fish", ["COMPLETE=fish hugepilot"]),
        ("zsh", "_hugepilotd", ["config"]),
        ("fish", "hugepilotd.fish", ["config"]),
    ] {
        let path = folder.path().join("completions").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        // Checks the syntax only.
        output(Command::new(shell).arg("-n").arg(path));
    }
}
