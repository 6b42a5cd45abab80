//! Documents with their tables written anew.
//!
//! Owns: layout. Never touches: prose, or which figures there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::definition::{CollectedTable, Definition, Row, Rules, TableDefinition};
use super::run::KeptRun;
use crate::verdict::Bound;

const END: &str = "<!-- end of table -->\n";

/// Writes each table, where one of the documents has its place, as the raw results have it.
pub(super) fn write_tables(documents: &mut [String], definition: &Definition, runs: &Path) -> Result<()> {
    for table in &definition.tables {
        let begin = format!("<!-- table: {} -->\n", table.name);
        let place = documents.iter_mut().find_map(|text| text.find(&begin).map(|at| (text, at + begin.len())));
        let (text, start) = place.with_context(|| format!("no document has a line {}", begin.trim()))?;
        let end = text[start..].find(END).with_context(|| format!("the table {} has no end", table.name))?;
        text.replace_range(start..start + end, &table_text(table, runs, &definition.rules)?);
    }
    let begun: usize = documents.iter().map(|text| text.matches("<!-- table: ").count()).sum();
    ensure!(
        begun == definition.tables.len(),
        "the documents have {begun} tables, and {} are defined",
        definition.tables.len()
    );
    Ok(())
}

/// The runs of a table, in the order of their names.
type Runs<'a> = BTreeMap<&'a str, KeptRun>;

fn table_text(table: &TableDefinition, runs: &Path, rules: &Rules) -> Result<String> {
    if let Some(copied) = &table.copied {
        let run = KeptRun::open(runs, &copied.run)?;
        let text = run.table(copied).with_context(|| format!("table {}", table.name))?;
        return Ok(format!("\n{text}\nFrom {}\n", run_text(&copied.run, &run, rules)));
    }
    if let Some(collected) = &table.collected {
        return collected_text(collected, runs, rules).with_context(|| format!("table {}", table.name));
    }
    let opened = open(table.rows.iter().map(|row| row.run.as_str()), runs)?;
    let published = if table.published { "published | " } else { "" };
    let mut text = format!("\n| figure | {published}ours | A/A | verdict | run |\n");
    text += if table.published { "|---|---|---|---|---|---|\n" } else { "|---|---|---|---|---|\n" };
    for row in &table.rows {
        text += &row_text(row, table.published, &opened)
            .with_context(|| format!("table {}, '{}'", table.name, row.figure))?;
    }
    Ok(text + &list_of(&opened, rules))
}

fn open<'a>(names: impl Iterator<Item = &'a str>, runs: &Path) -> Result<Runs<'a>> {
    names.collect::<BTreeSet<&str>>().into_iter().map(|name| Ok((name, KeptRun::open(runs, name)?))).collect()
}

fn number_of(name: &str, runs: &Runs<'_>) -> usize {
    runs.keys().position(|known| *known == name).expect("each row's run is open") + 1
}

/// The runs below a table, by number.
fn list_of(runs: &Runs<'_>, rules: &Rules) -> String {
    let lines = runs.iter().enumerate();
    let lines = lines.map(|(number, (name, run))| format!("{}. {}", number + 1, run_text(name, run, rules)));
    format!("\n{}\n", lines.collect::<String>())
}

fn collected_text(table: &CollectedTable, runs: &Path, rules: &Rules) -> Result<String> {
    let opened = open(table.runs.iter().map(|[_, run]| run.as_str()), runs)?;
    let heads: Vec<&str> = table.cells.iter().map(|[_, head]| head.as_str()).collect();
    let mut text = format!("\n| {} | {} | run |\n|{}\n", table.head, heads.join(" | "), "---|".repeat(heads.len() + 2));
    for [name, run] in &table.runs {
        // What was not measured has no row there.
        let cell = |row: &String| opened[run.as_str()].cell(row, &table.column).unwrap_or("-");
        let cells: Vec<&str> = table.cells.iter().map(|[row, _]| cell(row)).collect();
        ensure!(cells.iter().any(|cell| *cell != "-"), "{run} has nothing of it");
        text += &format!("| {name} | {} | {} |\n", cells.join(" | "), number_of(run, &opened));
    }
    Ok(text + &list_of(&opened, rules))
}

fn row_text(row: &Row, has_published: bool, runs: &Runs<'_>) -> Result<String> {
    let bound = row.at_least.map(Bound::AtLeast).or(row.at_most.map(Bound::AtMost));
    let shown = runs[row.run.as_str()].figure(&row.source, row.section.as_deref(), bound)?;
    let number = number_of(&row.run, runs);
    let dash = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
    let mut text = format!("| {} | ", row.figure);
    if has_published {
        write!(text, "{} | ", dash(row.published.as_deref()))?;
    }
    writeln!(
        text,
        "{} | {} | {} | {number} |",
        dash(Some(&shown.numbers)),
        dash(shown.noise.as_deref()),
        verdict(shown.verdict.as_deref())
    )?;
    Ok(text)
}

/// What readers look for stands out.
fn verdict(verdict: Option<&str>) -> String {
    match verdict {
        None => "-".to_owned(),
        Some(good @ ("met" | "seen")) => good.to_owned(),
        Some(other) => format!("**{}**", other.to_lowercase()),
    }
}

fn run_text(name: &str, run: &KeptRun, rules: &Rules) -> String {
    let (_, short) = name.rsplit_once('/').unwrap_or(("", name));
    let link = format!("[{short}](../../bench/runs/{name}.txt)");
    let Some(machine) = &run.machine else { return format!("{link}: a simulation\n") };
    let measured_by = match &machine.measured_by {
        Some(by) => format!("`{}`, commit {}", by.command, by.commit),
        None => "command and commit were not recorded".to_owned(),
    };
    let commit = machine.measured_by.as_ref().map(|by| by.commit.as_str());
    let is_of_before = run.depends_on_rules() && rules.are_later_than(&machine.date, commit);
    let note = if is_of_before { "; **before later changes of `decide` or `observe`**" } else { "" };
    format!("{link}: {}, Linux {}, {}; {measured_by}{note}\n", machine.processor, machine.kernel, machine.date)
}
