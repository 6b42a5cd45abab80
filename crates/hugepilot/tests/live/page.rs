//! The page that `--html` writes, in a browser: it must show what a person should see.
//!
//! Owns: a headless Chromium for each picture. Without a browser these tests are skipped and say so; `make test` installs one.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use crate::recording::recorded;
use crate::support::{Ended, PATIENCE, Program, hugepilot};

crate::trials!(a_page_draws_its_cells, pointing_at_a_cell_tells_its_mapping_and_region);

/// Lets a browser run as root, and keeps it off the network.
const QUIETLY: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=3000",
];

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].iter().find(|name| runs(name)).copied()
}

/// Opens a page with our script appended, and returns the resulting document. None, with a message, if there is no browser.
fn shown(page: &Path, link: &str, script: &str) -> Option<String> {
    let Some(browser) = browser() else {
        eprintln!("not tested: there is no Chromium here (`scripts/need chromium` installs it)");
        return None;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("page.html");
    let text =
        fs::read_to_string(page).expect("a page").replace("</html>", &format!("<script>{script}</script></html>"));
    fs::write(&copy, text).expect("a copy of the page");
    let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
    let mut command = Command::new(browser);
    command.args(QUIETLY).args([&profile, "--dump-dom", &format!("file://{}{link}", copy.display())]);
    command.env("HOME", folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let (status, document) = finish_in_time(command.spawn().expect("the browser starts"));
    assert!(status.success(), "the browser failed with {status}: {document}");
    Some(document)
}

/// Reads all output of a child. If it does not end in time, ends it and panics.
fn finish_in_time(child: Child) -> (ExitStatus, String) {
    let mut child = Ended(child);
    let mut output = child.0.stdout.take().expect("piped");
    let reading = thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    while !reading.is_finished() {
        assert!(std::time::Instant::now() < deadline, "the browser did not end within {PATIENCE:?}, and was killed");
        thread::sleep(std::time::Duration::from_millis(20));
    }
    let text = reading.join().expect("reading does not panic").expect("UTF-8");
    (child.0.wait().expect("it ends"), text)
}

/// A page that shows two seconds of a program that reads 32 MiB.
fn page(folder: &Path) -> (Program, std::path::PathBuf) {
    let (program, file) = recorded(folder, "map=32M nohugepage fill ready read=all");
    let page = folder.join("page.html");
    let ran = hugepilot(&format!("replay {file} --html {}", page.display()));
    assert!(ran.status.success(), "{ran:?}");
    (program, page)
}

/// The text of an element.
fn element<'a>(document: &'a str, id: &str) -> &'a str {
    // The last one, because a script that creates the element also names it.
    let found = document.rsplit_once(&format!("id=\"{id}\""));
    let (_, after) = found.unwrap_or_else(|| panic!("no element '{id}' in {document}"));
    after.split_once('>').and_then(|(_, rest)| rest.split_once("</")).expect("an element ends").0
}

fn a_page_draws_its_cells() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, page) = page(folder.path());
    // Counts the colours of the image's pixels, each a cell.
    let script = "const cells = new Image(); cells.src = document.getElementById('cells').getAttribute('href'); \
        cells.decode().then(() => { \
          const map = document.createElement('canvas'); \
          [map.width, map.height] = [cells.naturalWidth, cells.naturalHeight]; \
          const context = map.getContext('2d'); context.drawImage(cells, 0, 0); \
          const drawn = context.getImageData(0, 0, map.width, map.height).data, colours = new Set(); \
          for (let at = 0; at < drawn.length; at += 4) colours.add(Array.from(drawn.slice(at, at + 4)).join()); \
          document.body.insertAdjacentHTML('beforeend', `<p id=\"drawn\">${map.width} ${map.height} ${colours.size} \
            ${colours.has('80,0,50,255')} ${[...colours].every(colour => !colour.endsWith(',0'))}</p>`) })";
    let Some(document) = shown(&page, "", script) else { return };
    assert!(document.contains(&format!("(process {}): page walks", program.pid)), "{document}");
    let drawn: Vec<&str> = element(&document, "drawn").split_ascii_whitespace().collect();
    let numbers: Vec<usize> = drawn[..3].iter().map(|number| number.parse().expect("a number")).collect();
    // About five scans of 16 regions of the program and a few more.
    assert!((2..=9).contains(&numbers[0]) && numbers[1] >= 17 && numbers[2] >= 3, "{drawn:?}");
    assert_eq!(drawn[3..], ["true", "true"], "the hottest cell is darkest, and every cell is painted");
}

fn pointing_at_a_cell_tells_its_mapping_and_region() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, page) = page(folder.path());
    let row = format!("grid.rows.findIndex(row => row[0] === '{:#x}')", program.start);
    let script = format!(
        "const map = document.getElementById('cells'), box = map.getBoundingClientRect(); \
         map.dispatchEvent(new MouseEvent('mousemove', {{ clientX: box.left + box.width / grid.cells.length / 2, \
           clientY: box.top + box.height * ({row} + 0.5) / grid.rows.length }}))"
    );
    let Some(document) = shown(&page, "", &script) else { return };
    let tip = element(&document, "tip");
    let place = format!("{:#x}, 1 region (2 MiB)", program.start);
    for word in ["(anonymous)", &place, "walks/s", "2 MiB present", "0 % on huge pages"] {
        assert!(tip.contains(word), "'{word}' is missing: {tip}");
    }
    let linked = shown(&page, "#0,0", "").expect("a browser is there");
    assert!(element(&linked, "tip").contains("walks/s"), "{linked}");
}
