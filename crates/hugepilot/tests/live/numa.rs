//! Memory nodes: memory that a program spreads over nodes stays spread, and memory on one node stays there.
//!
//! Owns: programs with memory policies. On a machine with one node these tests are skipped and say so; tests/vm/run has a machine with two.

use std::collections::BTreeMap;

use heat::units::{Address, HUGE_PAGE, PAGES_PER_REGION, Slowdown};
use heat::{Meaning, TrackerKind};
use hugepilot_os::PidFd;
use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
use hugepilot_os::nodes::{NodePolicy, current_cpu, nodes_of_pages};
use kernel::nodes::{self, Node};
use kernel::target::Target;
use kernel::{Root, numa_maps};
use observe::Survey;
use pilot::machine::{Preparation, RegionNodes};
use serde_json::Value;

use crate::support::{Program, hugepilot, list, number};

crate::trials!(
    interleaved_memory_stays_interleaved,
    interleaved_memory_is_promoted_if_asked_for,
    a_policy_of_the_whole_program_counts,
    memory_bound_to_several_nodes_is_kept,
    memory_of_one_node_stays_there,
    the_survey_without_bpf_knows_policies,
    pages_come_from_the_node_that_they_are_bound_to,
);

/// Base pages in the programs' mappings of 32 MiB.
const PAGES: u64 = 8192;

/// Whether the machine has only one node; says so if it has.
fn has_one_node() -> bool {
    let one = !nodes::are_several(&Root::host()).expect("a list of nodes");
    if one {
        eprintln!("skipped: this machine has one memory node");
    }
    one
}

/// The number of pages of the program's mapping on each node.
fn pages_by_node(program: &Program) -> BTreeMap<Node, u64> {
    let lines = numa_maps::read(&Root::host(), program.pid).expect("it lives");
    let of_mapping = lines.iter().find(|line| line.start == Address(program.start)).expect("its mapping");
    of_mapping.pages.iter().map(|&(node, pages)| (node, pages.0)).collect()
}

/// The nodes that hold pages of each region of the program's mapping.
fn nodes_of_regions(program: &Program) -> Vec<Vec<Node>> {
    let target = PidFd::open(program.pid).expect("it lives");
    let nodes_of = |region: u64| {
        let pages: Vec<u64> = (0..PAGES_PER_REGION as u64).map(|page| region + page * 4096).collect();
        let mut nodes: Vec<Node> =
            nodes_of_pages(&target, &pages).expect("the kernel tells").into_iter().flatten().collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    };
    program.regions().map(nodes_of).collect()
}

fn promote(program: &Program, options: &str) -> Value {
    hugepilot(format!("promote {} --fast --json --window 300ms {options}", program.pid).trim_end()).json()
}

/// Asserts that promoting leaves the program's memory where it is, because its policy spreads it.
fn assert_kept(program: &Program) {
    let before = pages_by_node(program);
    let plan = promote(program, "--dry-run");
    let decisions = list(&plan, "decisions").iter().filter(|decision| program.holds(number(decision, "start")));
    let reasons: Vec<_> = decisions.map(|decision| decision["reason"].as_str().expect("a reason")).collect();
    assert_eq!(reasons, ["spread_over_nodes"; 16], "{plan}");
    let json = promote(program, "");
    assert_eq!((number(&json["reasons"], "spread_over_nodes"), program.huge_bytes()), (16, 0), "{json}");
    assert_eq!(pages_by_node(program), before, "{json}");
}

fn interleaved_memory_stays_interleaved() {
    if has_one_node() {
        return;
    }
    let mut program = Program::start("map=32M interleave=0,1 fill ready read=all");
    assert_eq!(pages_by_node(&program), [(0, PAGES / 2), (1, PAGES / 2)].into());
    assert_kept(&program);
    let text = hugepilot(&format!("promote {} --window 300ms", program.pid)).stdout;
    assert!(text.contains("its memory policy spreads it over memory nodes (--include-interleaved)"), "{text}");
    program.assert_unharmed();
}

fn interleaved_memory_is_promoted_if_asked_for() {
    if has_one_node() {
        return;
    }
    let mut program = Program::start("map=32M interleave=0,1 fill ready read=all");
    assert!(nodes_of_regions(&program).iter().all(|nodes| nodes == &[0, 1]));
    let json = promote(&program, "--include-interleaved");
    let applied = number(&json, "applied");
    // On a slow machine few regions may hold nearly all walks of such a short window.
    assert!(applied >= 1 && applied == number(&json["reasons"], "pays"), "{json}");
    assert_eq!(program.huge_bytes(), applied * HUGE_PAGE);
    let on_one_node = nodes_of_regions(&program).iter().filter(|nodes| nodes.len() == 1).count();
    assert_eq!(on_one_node as u64, applied, "a huge page is on one node: {json}");
    program.assert_unharmed();
}

fn a_policy_of_the_whole_program_counts() {
    if has_one_node() {
        return;
    }
    assert_kept(&Program::start("interleave-all=0,1 map=32M fill ready read=all"));
}

fn memory_bound_to_several_nodes_is_kept() {
    if has_one_node() {
        return;
    }
    assert_kept(&Program::start("map=32M bind=0,1 fill ready read=all"));
}

fn memory_of_one_node_stays_there() {
    if has_one_node() {
        return;
    }
    for node in [1, 0] {
        let mut program = Program::start(&format!("map=32M bind={node} fill ready read=all"));
        let json = promote(&program, "");
        assert!(number(&json, "applied") >= 1, "{json}");
        assert_eq!(program.huge_bytes(), number(&json, "applied") * HUGE_PAGE);
        assert_eq!(pages_by_node(&program), [(node, PAGES)].into(), "{json}");
        // None if preparing saves nothing.
        let prepared_on = json["prepared_on_nodes"].as_object().into_iter().flat_map(|nodes| nodes.keys());
        assert!(prepared_on.into_iter().all(|on| *on == node.to_string()), "{json}");
        program.assert_unharmed();
    }
}

fn the_survey_without_bpf_knows_policies() {
    if has_one_node() {
        return;
    }
    let spread = |steps: &str| {
        let program = Program::start(steps);
        let target = Target::open(program.pid).expect("it lives");
        let (tracker, meaning) = (TrackerKind::IdlePage, Meaning::Accessed);
        let mut survey = Survey::without_bpf(&Root::host(), tracker, meaning).expect("tables of page frames");
        let heat = survey.scan(&target, usize::MAX, |_, _| false).expect("it lives");
        let mapping = heat.mappings.iter().find(|mapping| mapping.range.start == Address(program.start));
        mapping.expect("its mapping").spread_over_nodes
    };
    assert!(spread("map=4M interleave=0,1 fill ready sleep=60s"));
    assert!(!spread("map=4M bind=1 fill ready sleep=60s"));
}

fn pages_come_from_the_node_that_they_are_bound_to() {
    if has_one_node() {
        return;
    }
    let (own, nodes) = (PidFd::open(std::process::id()).expect("it lives"), RegionNodes::new(&Root::host()));
    for node in [1, 0] {
        let mut memory = AlignedMemory::anonymous(HUGE_PAGE as usize).expect("memory");
        memory.set_node_policy(NodePolicy::Bind, &[node]).expect("the node has memory");
        memory.advise(0, HUGE_PAGE as usize, OwnAdvice::HugePage).expect("advice");
        memory.bytes_mut()[0] = 1;
        assert_eq!(nodes_of_pages(&own, &[memory.address()]).expect("the kernel tells"), [Some(node)]);
        assert_eq!(nodes.of(&own, Address(memory.address())), Some(node));
        let (prepared_on, _kept) =
            Preparation::new(Slowdown::ASKED_FOR).make_ready(current_cpu(), Some(node)).expect("a huge page");
        assert_eq!(prepared_on, Some(node));
    }
    let mut memory = AlignedMemory::anonymous(HUGE_PAGE as usize).expect("memory");
    memory.advise(0, HUGE_PAGE as usize, OwnAdvice::NoHugePage).expect("advice");
    memory.set_node_policy(NodePolicy::Bind, &[0]).expect("the node has memory");
    memory.bytes_mut()[..HUGE_PAGE as usize / 4].fill(1);
    memory.set_node_policy(NodePolicy::Prefer, &[1]).expect("the node has memory");
    memory.bytes_mut().fill(1);
    assert_eq!(nodes.of(&own, Address(memory.address())), Some(1), "three quarters of the region are there");
}
