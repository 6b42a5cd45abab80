//! Makes the manual from the command lines of hugepilot and hugepilotd: a man page for each command and for the configuration file, and shell
//! completions. `make install` runs this program, and does not install it.
//!
//! Owns: the style of a page, and what all programs have in common: files, environment, exit status. Never touches: what a page says of its command,
//! which is the help that [`Cli`] and [`DaemonArgs`] define.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;
use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use daemon::args::DaemonArgs;
use daemon::config::Config;
use hugepilot::cli::args::Cli;

const VERSION: &str = concat!("hugepilot ", env!("CARGO_PKG_VERSION"));

/// A section of the manual.
#[derive(Clone, Copy)]
struct Section {
    number: &'static str,
    title: &'static str,
}

const USERS: Section = Section { number: "1", title: "General Commands Manual" };
const ADMINISTRATORS: Section = Section { number: "8", title: "System Manager's Manual" };
const FORMATS: Section = Section { number: "5", title: "File Formats Manual" };

/// Where the programs keep what.
const FILES: [(&str, &str); 5] = [
    ("/etc/hugepilot/hugepilot.toml", "The configuration of hugepilotd; see hugepilot.toml(5)."),
    (
        "/run/hugepilot/",
        "Records of what was promoted, so that it can be given back, also after a crash. They end with a reboot.",
    ),
    ("/run/hugepilot/walk-cost.json", "What a page walk costs on this machine, measured once after each boot."),
    (
        "/run/hugepilot/control.sock",
        "Where hugepilotd listens for `hugepilot status` and its like, and for programs with libhps.",
    ),
    (
        "/var/lib/hugepilot/trials.json",
        "What trials showed, by which later forecasts are corrected; `--no-calibration` ignores it.",
    ),
];
const ENVIRONMENT: [(&str, &str); 3] = [
    ("NO_COLOR", "If it is set and not empty, output has no colors."),
    ("RUST_LOG", "Which events are logged on standard error, such as `info` or `pilot=debug`; warnings by default."),
    ("COMPLETE", "Set by the completions of shells."),
];
const WRONG_USAGE: (&str, &str) = ("2", "Wrong usage.");
/// What 0 and 1 mean of each command, except `hugepilot run`.
const EXIT_STATUS: [(&str, &str, &str); 26] = [
    ("hugepilot", "The command did its work; its own page says what that is.", "An error, which standard error tells."),
    ("hugepilot-scan", "Programs were observed, whether any of them would gain or not.", "Nothing could be observed."),
    (
        "hugepilot-heat",
        "The program was observed.",
        "It could not be observed, or a signal came before the first observation.",
    ),
    (
        "hugepilot-explain",
        "Every program named was explained, whether huge pages would help it or not.",
        "At least one could not be explained; of several, the others were.",
    ),
    (
        "hugepilot-promote",
        "Something was promoted, or there was nothing to promote.",
        "An error, the kernel refused every region of a program, or a signal came, and what was promoted by then stays. Of several programs one \
         suffices, and the others were promoted.",
    ),
    (
        "hugepilot-trial",
        "Something was measured until it was known or time was up, whatever the answer is.",
        "Nothing could be tried, or the trial ended early: the program ended or did too little, or a signal came. Memory is on what it was found on, \
         or an error says that it is not.",
    ),
    (
        "hugepilot-give-back",
        "Something was given back, or nothing was promoted.",
        "An error, the kernel refused more regions than were given back, or a signal came. Of several programs one suffices, and the others were \
         given back.",
    ),
    ("hugepilot-attach", "The programs or `--for` ended, or a signal ended it.", "It could not begin."),
    ("hugepilot-status", "A daemon answered.", "No daemon answers at the socket."),
    (
        "hugepilot-pause",
        "The daemon has paused all that was named.",
        "No daemon answers, or it refused one of them; those before it are paused.",
    ),
    (
        "hugepilot-resume",
        "The daemon has resumed all that was named.",
        "No daemon answers, or it refused one of them; those before it are resumed.",
    ),
    ("hugepilot-fleet", "The command did its work.", "An error, which standard error tells."),
    (
        "hugepilot-fleet-trial",
        "Replicas were compared, whatever the answer is.",
        "Prometheus does not answer, or knows no replica on trial.",
    ),
    ("hugepilot-pool", "The pools were shown.", "They could not be read."),
    (
        "hugepilot-pool-set",
        "Every pool has the pages wanted, or `--dry-run` showed what would be done.",
        "A pool has other pages than wanted, the kernel refused, or a signal came; what was reached stays.",
    ),
    (
        "hugepilot-pool-persist",
        "The files were shown or, with `--apply`, written.",
        "Nothing would last, or a file could not be written; those before it are.",
    ),
    ("hugepilot-pool-mount", "The pool is mounted.", "It is not."),
    ("hugepilot-pool-unmount", "The pool is unmounted.", "It is not."),
    (
        "hugepilot-reclaim",
        "`--for` ended or a signal ended it, or `--status` or `--dry-run` was answered.",
        "It could not begin, or had to end early; the kernel's settings are restored.",
    ),
    (
        "hugepilot-record",
        "Something was recorded, until `--for` or the program ended, or a signal came.",
        "Nothing was recorded, or recording ended early by an error; what was recorded by then stays.",
    ),
    (
        "hugepilot-replay",
        "The recording was shown; one that is cut off is shown as far as it goes.",
        "It could not be read, or has no such observation.",
    ),
    (
        "hugepilot-cache",
        "Every file was read and something is on huge pages or, with `--drop`, every file was dropped.",
        "A file was left as it was, no huge page was obtained, the files do not fit, or a signal came; what was read stays.",
    ),
    ("hugepilot-color", "The command did its work.", "An error, which standard error tells."),
    ("hugepilot-color-probe", "Colors were measured, whether they are real or not.", "They could not be measured."),
    (
        "hugepilot-doctor",
        "The machine was checked, whatever is missing: `--json` tells that.",
        "The result could not be written.",
    ),
    (
        "hugepilot-config",
        "The configuration was printed or, with `--check`, is right.",
        "With `--check`: the file has an error, or cannot be read.",
    ),
];
/// The same of the daemon.
const EXIT_STATUS_OF_DAEMON: (&str, &str) = (
    "It was stopped by a signal. With `--check`: the daemon that runs is well.",
    "It could not start: rights are missing, or the configuration has an error. With `--check`: no daemon answers, or it hangs.",
);
const EXIT_STATUS_OF_RUN: [(&str, &str); 6] = [
    ("0", "The program succeeded, or `--print` printed."),
    ("1", "The program was not started, which standard error tells, or it is the program's own."),
    ("2", "Wrong usage, or the program's own."),
    ("3", "The program succeeded, and less than `--require` was on huge pages; or the program's own."),
    ("128 + N", "Signal N ended the program."),
    ("other", "The program's own."),
];

/// Writes the man pages of hugepilot and hugepilotd, and their completions for shells.
#[derive(Parser)]
#[command(name = "hugepilot-manual")]
struct Args {
    /// Where to: the pages go to DIR/man1 and DIR/man8, the completions to DIR/completions
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let directory = Args::parse().directory;
    // Its pages would say what the commands' own pages say.
    write_pages_of(Cli::command().disable_help_subcommand(true), USERS, &directory)?;
    write_pages_of(DaemonArgs::command(), ADMINISTRATORS, &directory)?;
    write_configuration_page(&directory)?;
    write_completions(&directory)
}

/// Writes the manual pages of one program.
fn write_pages_of(mut program: Command, section: Section, directory: &Path) -> anyhow::Result<()> {
    program.build();
    write_pages(&program, section, &made(directory, section)?)
}

/// The directory of a section.
fn made(directory: &Path, section: Section) -> anyhow::Result<PathBuf> {
    let pages = directory.join(format!("man{}", section.number));
    fs::create_dir_all(&pages).with_context(|| format!("cannot make {}", pages.display()))?;
    Ok(pages)
}

/// Writes hugepilot.toml(5): the file that `hugepilot config` prints, which says of each key what it does.
fn write_configuration_page(directory: &Path) -> anyhow::Result<()> {
    let path = made(directory, FORMATS)?.join("hugepilot.toml.5");
    let mut roff = Roff::new();
    roff.control("TH", ["hugepilot.toml", FORMATS.number, " ", VERSION, FORMATS.title]);
    roff.control("SH", ["NAME"])
        .text([roman("hugepilot.toml - which processes hugepilotd pilots, and what that may take")]);
    roff.control("SH", ["SYNOPSIS"]).text([roman(Config::PATH)]);
    roff.control("SH", ["DESCRIPTION"]).text([roman(
        "A file in TOML, which hugepilotd reads at its start and on SIGHUP; a file with errors changes nothing. `hugepilot config` prints the file \
         below, with every key, its default and what it does; `hugepilot config --check FILE` checks one.",
    )]);
    roff.control("SH", ["KEYS"]);
    verbatim(&mut roff, Config::COMMENTED);
    roff.control("SH", ["SEE ALSO"]).control("BR", ["hugepilotd", "(8),"]).control("BR", ["hugepilot", "(1)"]);
    fs::write(&path, typed(&roff.render())).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes what shells load. hugepilot answers them itself, since only a running program knows which others run.
fn write_completions(directory: &Path) -> anyhow::Result<()> {
    let completions = directory.join("completions");
    fs::create_dir_all(&completions).with_context(|| format!("cannot make {}", completions.display()))?;
    for (file, text) in [
        ("hugepilot.bash", "source <(COMPLETE=bash hugepilot)\n"),
        (
            "_hugepilot",
            "#compdef hugepilot\nsource <(COMPLETE=zsh hugepilot)\n_clap_dynamic_completer_hugepilot \"$@\"\n",
        ),
        ("hugepilot.fish", "COMPLETE=fish hugepilot | source\n"),
    ] {
        let path = completions.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut DaemonArgs::command(), "hugepilotd", &completions)
            .with_context(|| format!("cannot write the completion for {shell} to {}", completions.display()))?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, section: Section, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(format!("{}.{}", name(command), section.number));
    let page = page(command, section).with_context(|| format!("cannot lay out {}", path.display()))?;
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    command.get_subcommands().try_for_each(|command| write_pages(command, section, directory))
}

/// A command's name in the manual: `hugepilot-heat`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command, section: Section) -> io::Result<String> {
    // An empty date would be omitted, and the next field would move into its place.
    let man = Man::new(command.clone()).date(" ").source(VERSION);
    let man = man.section(section.number).manual(section.title);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    closing(command).to_writer(&mut page)?;
    Ok(typed(&String::from_utf8_lossy(&page)))
}

/// The usage as in `--help`, which shows options that exclude each other; the renderer's own lists all options without their values.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    for line in usage.trim_start_matches("Usage:").lines() {
        roff.text([roman(line.trim())]).control("br", []);
    }
    roff
}

/// The end of `--help`: examples line by line, exactly as they must be typed, and the rest as running text.
fn closing(command: &Command) -> Roff {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, notes) = match help.strip_prefix("Examples:\n") {
        Some(rest) => rest.split_once("\n\n").unwrap_or((rest, "")),
        None => ("", help.as_str()),
    };
    let mut roff = Roff::new();
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        let lines = examples.lines().map(|line| line.strip_prefix("  ").unwrap_or(line));
        verbatim(&mut roff, &lines.collect::<Vec<_>>().join("\n"));
    }
    if !notes.is_empty() {
        roff.control("SH", ["NOTES"]);
        for line in notes.lines() {
            if line.is_empty() {
                roff.control("PP", [])
            } else {
                roff.text([roman(line)])
            };
        }
    }
    list(&mut roff, "FILES", &FILES);
    list(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
    list(&mut roff, "EXIT STATUS", &exit_status(name(command)));
    roff.control("SH", ["SEE ALSO"]);
    if name(command) == "hugepilot" {
        roff.control("BR", ["hugepilotd", "(8),"])
            .control("BR", ["hugepilot.toml", "(5),"])
            .control("BR", ["hps", "(3)"]);
    } else {
        roff.control("BR", ["hugepilot", "(1),"]).control("BR", ["hugepilot.toml", "(5)"]);
    }
    roff
}

/// What each exit status of a command means.
fn exit_status(name: &str) -> Vec<(&'static str, &'static str)> {
    let of_command = || EXIT_STATUS.iter().find(|each| each.0 == name).map(|each| (each.1, each.2));
    let (success, failure) = match name {
        "hugepilot-run" => return EXIT_STATUS_OF_RUN.to_vec(),
        "hugepilotd" => EXIT_STATUS_OF_DAEMON,
        _ => of_command().unwrap_or_else(|| panic!("what does the exit status of {name} mean?")),
    };
    vec![("0", success), ("1", failure), WRONG_USAGE]
}

/// A section with names and what they mean.
fn list(roff: &mut Roff, title: &str, entries: &[(&str, &str)]) {
    roff.control("SH", [title]);
    entries.iter().for_each(|entry| list_entry(roff, entry));
}

fn list_entry(roff: &mut Roff, (name, meaning): &(&str, &str)) {
    roff.control("TP", []).text([bold(*name)]).text([roman(*meaning)]);
}

/// Lines exactly as they must be typed.
fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("EX", []);
    text.lines().for_each(|line| _ = roff.text([roman(line)]));
    roff.control("EE", []);
}

/// Keeps the keyboard's characters, for which typesetters have finer shapes, so that commands can be copied.
fn typed(page: &str) -> String {
    page.replace('`', "\\(ga").replace('^', "\\(ha").replace('~', "\\(ti")
}
