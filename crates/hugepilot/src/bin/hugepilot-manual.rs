//! Makes the manual from the command lines of hugepilot and hugepilotd: a man page for each command, and shell completions. `make install` runs this
//! program, and does not install it.
//!
//! Owns: the style of a page. Never touches: what it says, which is the help that [`Cli`] and [`DaemonArgs`] define.

use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::Context;
use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use daemon::args::DaemonArgs;
use hugepilot::cli::args::Cli;

/// A section of the manual.
#[derive(Clone, Copy)]
struct Section {
    number: &'static str,
    title: &'static str,
}

const USERS: Section = Section { number: "1", title: "General Commands Manual" };
const ADMINISTRATORS: Section = Section { number: "8", title: "System Manager's Manual" };

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
    write_manual(Cli::command().disable_help_subcommand(true), USERS, &directory)?;
    write_manual(DaemonArgs::command(), ADMINISTRATORS, &directory)
}

/// Writes the manual pages and completions of one program.
fn write_manual(mut program: Command, section: Section, directory: &Path) -> anyhow::Result<()> {
    let (pages, completions) = (directory.join(format!("man{}", section.number)), directory.join("completions"));
    for directory in [&pages, &completions] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    program.build();
    write_pages(&program, section, &pages)?;
    let name = program.get_name().to_owned();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut program, &name, &completions)
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
    let man = Man::new(command.clone()).date(" ").source(concat!("hugepilot ", env!("CARGO_PKG_VERSION")));
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
        roff.control("SH", ["EXAMPLES"]).control("EX", []);
        for line in examples.lines() {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
        roff.control("EE", []);
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
    roff.control("SH", ["SEE ALSO"]);
    if name(command) == "hugepilot" {
        roff.control("BR", ["hugepilotd", "(8),"]).control("BR", ["hps", "(3)"]);
    } else {
        roff.control("BR", ["hugepilot", "(1)"]);
    }
    roff
}

/// Keeps the keyboard's characters, for which typesetters have finer shapes, so that commands can be copied.
fn typed(page: &str) -> String {
    page.replace('`', "\\(ga").replace('^', "\\(ha").replace('~', "\\(ti")
}
