//! `/etc/kernel/cmdline`: whatever stands there, what is added to it is taken away again, and nothing else.
#![no_main]

use heat::units::Bytes;
use pool::{Edit, Lasting, LastingPool, PoolSurroundings, persist};

const FILE: &str = "/etc/kernel/cmdline";

libfuzzer_sys::fuzz_target!(|input: (u64, &str)| {
    let (pages, text) = input;
    let mut around = PoolSurroundings::default();
    around.files.insert(FILE.to_owned(), text.to_owned());
    let pool = LastingPool { page_size: Bytes(1 << 30), pages, overcommit: 0 };
    let lasting = Lasting { pools: vec![pool], ..Lasting::default() };
    // What somebody else reserves there is left to them.
    let Ok((edits, _)) = persist(&lasting, &around) else { return };
    apply(edits, &mut around);
    assert!(persist(&lasting, &around).expect("it was right before").0.is_empty());
    let (edits, _) = persist(&Lasting::default(), &around).expect("nothing is to be added");
    apply(edits, &mut around);
    // Spaces at the end of a line may go.
    assert!(around.files[FILE].split_whitespace().eq(text.split_whitespace()));
    assert_eq!(around.files.len(), 1);
});

fn apply(edits: Vec<Edit>, around: &mut PoolSurroundings) {
    for Edit { path, after, .. } in edits {
        match after {
            Some(text) => drop(around.files.insert(path, text)),
            None => drop(around.files.remove(&path)),
        }
    }
}
