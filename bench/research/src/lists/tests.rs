//! The command's arguments, and its raw results.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    lists: ListsArguments,
}

fn parse(words: &[&str]) -> Result<ListsArguments, clap::Error> {
    Line::try_parse_from([&["lists"][..], words].concat()).map(|line| line.lists)
}

#[test]
fn all_policies_are_compared_unless_some_are_named() {
    let names =
        |words: &[&str]| parse(words).unwrap().kinds().iter().map(PolicyKind::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(names(&[]), "mixed mixed-2.6.9 split-8 split-100 split-by-use-8 split-by-use-100 anon-file generations");
    assert_eq!(
        names(&["--mapped-page-cost=1,50"]),
        "mixed mixed-2.6.9 split-1 split-50 split-by-use-1 split-by-use-50 anon-file generations"
    );
    assert_eq!(names(&["--policies=split,mixed,split-3", "--mapped-page-cost=100"]), "mixed split-3 split-100");
}

#[test]
fn sizes_are_the_papers_and_more() {
    let gib = |words: &[&str]| parse(words).unwrap().sizes().iter().map(|size| size.0 >> 30).collect::<Vec<_>>();
    assert_eq!(gib(&[]), [2, 4, 8, 16, 32, 64]);
    assert_eq!(gib(&["--quick"]), [1, 2, 4]);
    assert_eq!(gib(&["--quick", "--memory=3G,5G"]), [3, 5]);
}

#[test]
fn nonsense_is_refused() {
    for word in [
        "--memory=1M",
        "--trace=nothing",
        "--policies=best",
        "--policies=split-101",
        "--mapped-page-cost=101",
        "--resident=40",
        "--resident=95%",
        "--page=48K",
        "--page=1K",
        "--disk=0",
        "--settle=0",
    ] {
        assert!(parse(&[word]).is_err(), "{word}");
    }
}

#[test]
fn raw_results_are_read_as_they_were_written() {
    let arguments =
        parse(&["--memory=256M", "--trace=writers", "--policies=mixed", "--intervals=1", "--page=256K"]).unwrap();
    let (record, ended) = arguments.simulate(&Stop::default());
    ended.unwrap();
    let read: ListsRecord = serde_json::from_str(&record.json().unwrap()).unwrap();
    assert_eq!((read.outcomes.len(), &read), (1, &record));
}

#[test]
fn a_stop_keeps_what_there_is() {
    let stop = Stop::default();
    stop.request();
    let (record, ended) = parse(&["--memory=256M", "--trace=writers"]).unwrap().simulate(&stop);
    assert!(ended.is_err() && record.outcomes.is_empty());
}
