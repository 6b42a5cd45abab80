//! Page colors: how many there are by level, and whether they are real.

use color::Probe;
use color::answer::{Answer, ColorObstacle, Finding, Indexing};
use heat::statistics::Interval;
use pilot::words::{count, name};

use super::joined;

/// The result of the probe for page colors.
pub fn color(probe: &Probe) -> String {
    let place = if probe.virtual_machine { ", in a virtual machine" } else { "" };
    let mut lines = vec![format!("processor {} ({}){place}", probe.cpu, probe.model), String::new()];
    for finding in &probe.findings {
        lines.extend(level(finding));
    }
    lines.push(String::new());
    lines.push(conclusion(probe));
    joined(lines)
}

fn level(finding: &Finding) -> Vec<String> {
    let cache = finding.cache;
    let answer = name(finding.answer).replace('-', " ");
    let colors = match cache.colors() {
        1 => "one color".to_owned(),
        many => format!("{} colors", count(many.into())),
    };
    let mut lines = vec![format!("L{} cache, {}, {} ways, {colors}: {answer}", cache.level, cache.size, cache.ways)];
    lines.extend(finding.slowdown.iter().map(|interval| format!("  {}", measured(interval))));
    lines.extend(finding.indexing.map(|indexing| format!("  {}", how(indexing, cache.sets))));
    lines.extend(finding.obstacle.map(|obstacle| format!("  {}", obstacle_words(obstacle))));
    if finding.answer == Answer::Undecided && finding.obstacle.is_none() {
        lines.push(
            "  the measurements allow both answers; leave the machine alone meanwhile, or ask for more --rounds"
                .to_owned(),
        );
    }
    lines
}

fn measured(interval: &Interval) -> String {
    let Interval { estimate, low, high, confidence, pairs } = interval;
    format!(
        "reads of pages that share a color take {estimate:.2} times as long as those of spread pages ({low:.2} to {high:.2}, {:.0} % \
         confidence, {pairs} rounds)",
        confidence * 100.0
    )
}

fn how(indexing: Indexing, sets: u64) -> String {
    match indexing {
        Indexing::BareBits => "the set follows from bits of the address as they are".to_owned(),
        Indexing::HashedBySets => {
            format!("{} sets are no power of two: the set follows from a hash of the address", count(sets))
        }
        Indexing::Hashed => "the set follows from a hash of the address".to_owned(),
        Indexing::HashedOrHidden => {
            "either the set follows from a hash of the address, or the host places this machine's memory page by page; \
             from inside it cannot be told which"
                .to_owned()
        }
    }
}

fn obstacle_words(obstacle: ColorObstacle) -> String {
    match obstacle {
        ColorObstacle::OneColor => "each page reaches every set, so there is nothing to color".to_owned(),
        ColorObstacle::UnknownBelow => {
            "not measured: the kernel does not tell the shape of the level below, from which this one could not be told apart"
                .to_owned()
        }
        ColorObstacle::FewColors => {
            "not measured: pages of one color in the level below have too few colors here to be spread, so that these two levels \
             cannot be told apart"
                .to_owned()
        }
        ColorObstacle::NotConfirmed => {
            "a first measurement saw colors, and this second one does not; leave the machine alone meanwhile, or ask for more --rounds"
                .to_owned()
        }
        ColorObstacle::FewPages => {
            "the measurements allow both answers, and no more pages of one color are left; try again, which chooses from others, and \
             from more where more memory is available"
                .to_owned()
        }
        ColorObstacle::Memory { needed, available } => format!(
            "not measured: that takes {needed} to choose pages from, at most a quarter of what is available is used, and that is \
             {available}"
        ),
    }
}

fn conclusion(probe: &Probe) -> String {
    let real: Vec<String> = probe
        .findings
        .iter()
        .filter(|finding| finding.answer == Answer::Real)
        .map(|finding| format!("{} colors for L{}", finding.cache.colors(), finding.cache.level))
        .collect();
    if !real.is_empty() {
        return format!(
            "Coloring may help data that fits the cache: {} (hps_color_create). Measure your program.",
            real.join(", ")
        );
    }
    match probe.findings.iter().any(|finding| finding.answer == Answer::Undecided) {
        true => "No colors were seen; what is undecided may have some. Nothing is to be gained from coloring as far as is known.",
        false => "Coloring gains nothing on this machine as it is.",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;

    #[test]
    fn each_level_has_its_answer_and_its_reason() {
        insta::assert_snapshot!(color(&samples::color_probe()));
    }

    #[test]
    fn levels_that_cannot_be_told_apart_are_said() {
        assert!(obstacle_words(ColorObstacle::UnknownBelow).contains("does not tell the shape of the level below"));
        assert!(obstacle_words(ColorObstacle::FewColors).contains("cannot be told apart"));
    }

    #[test]
    fn a_gain_is_only_spoken_of_where_colors_are_real() {
        let mut probe = samples::color_probe();
        assert!(conclusion(&probe).contains("32 colors for L2") && probe.coloring_can_help());
        probe.findings[0].answer = Answer::Undecided;
        assert!(conclusion(&probe).contains("undecided") && !probe.coloring_can_help());
        probe.findings.retain(|finding| finding.answer == Answer::NotObservable);
        assert!(conclusion(&probe).contains("gains nothing"));
    }
}
