//! The heat map as one self-contained page for a browser.
//!
//! Owns: the page. Never touches: the network; script and data are in the page.

#![expect(non_camel_case_types, reason = "the type of an object's field is named like the field")]

use super::{Cell, HeatMapOverTime};

const PAGE: &str = include_str!("page.html");
/// Where the data goes in the page.
const PLACE: &str = "/*DATA*/null";

/// The page.
pub fn page(heat_map: &HeatMapOverTime) -> String {
    let cell = |cell: &Cell| (cell.walks_per_second.round(), rounded(cell.huge), cell.present);
    let data = object! {
        title: &heat_map.title,
        rows: heat_map.rows.iter().map(|row| (row.start.to_string(), row.regions, &row.mapping)).collect::<Vec<_>>(),
        seconds: heat_map.times.iter().map(|time| time.seconds()).collect::<Vec<_>>(),
        hottest: heat_map.hottest(),
        // For each cell of a column: page walks a second, the share on huge pages, and bytes present.
        cells: heat_map.cells.iter().map(|column| column.iter().map(cell).collect()).collect::<Vec<Vec<_>>>(),
    };
    let data = serde_json::to_string(&data).expect("numbers and text cannot fail");
    PAGE.replace(PLACE, &harmless(&data))
}

fn rounded(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

/// Names of mappings are untrusted text: nothing in them may end the script that contains them.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::heat_map_over_time::tests::{heat_map, moments};

    #[test]
    fn the_page_holds_its_data_and_nothing_from_elsewhere() {
        let page = page(&heat_map("memcached", &moments(2)));
        assert!(!page.contains(PLACE) && page.contains("\"seconds\":[1.0,2.0]"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    }

    #[test]
    fn a_name_cannot_end_the_script() {
        let mut heat_map = heat_map("a", &moments(1));
        heat_map.rows[0].mapping = "/tmp/</script><script>alert(1)</script>".to_owned();
        let page = page(&heat_map);
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains("\\u003c/script>"));
    }
}
