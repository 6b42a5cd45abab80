//! A scan as one self-contained page for a browser.
//!
//! Owns: the page. Never touches: the network; the page has no script.

use super::ScanReport;
use super::scan_words::{HEADINGS, NAMES, ScanRow, rows};

const BEGIN: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>hugepilot scan</title>
<style>
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: light-dark(#222, #ddd) }
table { border-collapse: collapse }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap; border-top: 1px solid light-dark(#ddd, #444) }
th.name, td.name { text-align: left }
td.words { text-align: left; border-top: none; color: light-dark(#555, #aaa); white-space: normal; padding-bottom: .6rem }
code { background: light-dark(#f2f2f2, #333); padding: .1rem .3rem }
</style>
<h1>Would huge pages help?</h1>
<table>
";
const END: &str = "</table>\n</html>\n";

/// The page, idle programs included.
pub fn page(report: &ScanReport) -> String {
    let heading = cells("th", HEADINGS.iter().map(|heading| (*heading).to_owned()));
    let rows: String = rows(report).iter().map(row).collect();
    format!("{BEGIN}<tr>{heading}</tr>\n{rows}{END}")
}

fn row(row: &ScanRow) -> String {
    let words = row.notes.iter().map(|note| escaped(note));
    let words = words.chain(row.next.iter().map(|next| format!("next: <code>{}</code>", escaped(next))));
    let words: Vec<String> = words.collect();
    let second = match words.is_empty() {
        true => String::new(),
        false => format!("<tr><td class=\"words\" colspan=\"{}\">{}</td></tr>\n", HEADINGS.len(), words.join("<br>")),
    };
    format!("<tr>{}</tr>\n{second}", cells("td", row.cells.iter().cloned()))
}

fn cells(element: &str, cells: impl Iterator<Item = String>) -> String {
    let cell = |(column, text): (usize, String)| {
        let class = if column < NAMES { " class=\"name\"" } else { "" };
        format!("<{element}{class}>{}</{element}>", escaped(&text))
    };
    cells.enumerate().map(cell).collect()
}

/// Names of programs are untrusted text.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;
    use pilot::programs::GroupBy;

    use super::*;
    use crate::report::scan_samples::scanned;

    #[test]
    fn a_name_is_shown_and_no_more() {
        let mut found = scanned();
        found[1].0.name = "<script>".to_owned();
        let page = page(&ScanReport { found: &found, by: GroupBy::Program, smallest: Bytes(0) });
        assert!(page.contains("<td class=\"name\">&lt;script&gt;</td>") && !page.contains("<script"), "{page}");
        assert!(page.contains("next: <code>hugepilot trial 4242</code>"), "{page}");
        assert_eq!(page.matches("<tr>").count(), page.matches("</tr>").count());
    }
}
