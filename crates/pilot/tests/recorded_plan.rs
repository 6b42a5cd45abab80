//! Decides on a recording, as `hugepilot replay --plan` does: a file keeps all that a plan depends on.

use heat::samples::{MEMFD, clearing, heat_of, mixed_heat, region};
use heat::units::{Bytes, Nanos};
use heat::{Heat, Meaning};
use pilot::decide::{Allowance, Past, Spent, decide};
use recording::{Moment, Recorder, Recording};

#[test]
fn a_plan_is_the_same_on_what_was_recorded() {
    let mut second = Heat { meaning: Meaning::Accessed, busy_cpus: None, ..mixed_heat() };
    second.regions.remove(0);
    second.clearing = Some(clearing());
    second.regions[0].unobserved = 7;
    second.mappings[1].shared = Some(MEMFD);
    second.mappings[0].spread_over_nodes = true;
    let heats = [mixed_heat(), second, heat_of(vec![region(5, 12345.678, 3)])];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let mut recorder = Recorder::create(&path, "memcached").unwrap();
    for heat in &heats {
        recorder.add(&Moment { at: Nanos(1), heat: heat.clone(), page_tables: Bytes(12 << 10) }).unwrap();
    }
    recorder.finish().unwrap();
    let read: Vec<Moment> = Recording::open(&path).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(read.len(), heats.len());
    for (read, written) in read.iter().zip(&heats) {
        let limits = Allowance::default().limits(written.rss, &Spent::default());
        let plan = |heat: &Heat| {
            let decisions = decide(heat, &limits, &Past::default()).decisions.into_iter();
            decisions.map(|each| (each.start, each.verdict, each.reason, each.growth)).collect::<Vec<_>>()
        };
        assert_eq!(plan(&read.heat), plan(written));
    }
}
