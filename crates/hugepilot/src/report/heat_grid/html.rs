//! The grid as one self-contained page for a browser: the picture, and what stands in the cell under the pointer.
//!
//! Owns: the page. Never touches: the network; script and data are in the page.

#![expect(non_camel_case_types, reason = "the type of an object's field is named like the field")]

use picture::DrawError;

use super::{Cell, Columns, HeatGrid};

const PAGE: &str = include_str!("page.html");
/// Where the picture and the data go in the page.
const PICTURE: &str = "<!--PICTURE-->";
const DATA: &str = "/*DATA*/null";

/// The page. Errors: the picture cannot be drawn.
pub fn page(grid: &HeatGrid) -> Result<String, DrawError> {
    let told = |cell: Cell| (cell.walks_per_second.round(), rounded(cell.huge), cell.present, cell.start.to_string());
    let cell = |cell: &Option<Cell>| cell.map(told);
    let (seconds, per_cell) = match &grid.columns {
        Columns::Times(times) => (Some(times.iter().map(|time| time.seconds()).collect::<Vec<_>>()), None),
        Columns::Regions { per_cell } => (None, Some(per_cell)),
    };
    let data = object! {
        title: &grid.title,
        rows: grid.rows.iter().map(|row| (row.start.to_string(), row.regions, &row.mapping)).collect::<Vec<_>>(),
        // Where columns are observations, when each ended.
        seconds,
        // Where columns are regions side by side, how many a cell holds.
        per_cell,
        // For each cell of a column: page walks a second, the share on huge pages, bytes present, and where it starts.
        cells: grid.cells.iter().map(|column| column.iter().map(cell).collect()).collect::<Vec<Vec<_>>>(),
    };
    let data = serde_json::to_string(&data).expect("numbers and text cannot fail");
    Ok(PAGE.replace(DATA, &harmless(&data)).replace(PICTURE, &super::svg::svg(grid)?))
}

fn rounded(share: f64) -> f64 {
    (share * 100.0).round() / 100.0
}

/// Names of mappings are untrusted text: nothing in them may end the script that contains them, nor stand for the picture.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::heat_grid::tests::{grid, moments};

    #[test]
    fn the_page_holds_its_data_and_nothing_from_elsewhere() {
        let page = page(&grid("memcached", &moments(2))).unwrap();
        assert!(!page.contains(DATA) && !page.contains(PICTURE) && page.contains("\"seconds\":[1.0,2.0]"), "{page}");
        // The names of SVG's own vocabulary are no addresses that a browser opens.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
    }

    #[test]
    fn a_single_observation_has_its_regions_side_by_side() {
        let page = page(&grid("memcached", &moments(1))).unwrap();
        assert!(page.contains("\"seconds\":null,\"per_cell\":1"), "{page}");
    }

    #[test]
    fn a_name_cannot_end_the_script() {
        let mut grid = grid("a", &moments(1));
        grid.rows[0].mapping = "/tmp/</script><script>alert(1)</script><!--PICTURE-->".to_owned();
        let page = page(&grid).unwrap();
        assert_eq!(page.matches("</script>").count(), 1);
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(page.contains("\\u003c/script>"));
    }
}
