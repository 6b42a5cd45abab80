//! Page colors: how many there are by level, and whether they are real.

use color::Probe;
use color::answer::{ColorObstacle, Finding};
use serde::Serialize;

use super::{ReportKind, document};

/// The result of the probe for page colors.
pub fn color(probe: &Probe) -> String {
    document(
        ReportKind::ColorProbe,
        &object! {
            cpu: probe.cpu,
            model: &probe.model,
            virtual_machine: probe.virtual_machine,
            coloring_can_help: probe.coloring_can_help(),
            caches: probe.findings.iter().map(cache).collect::<Vec<_>>(),
        },
    )
}

fn cache(finding: &Finding) -> impl Serialize {
    let cache = finding.cache;
    // How many times longer reads of pages that share a color take.
    let slowdown = finding.slowdown.map(|interval| {
        object! {
            estimate: interval.estimate,
            low: interval.low,
            high: interval.high,
            confidence: interval.confidence,
            rounds: interval.pairs,
        }
    });
    object! {
        level: cache.level,
        size_bytes: cache.size,
        ways: cache.ways,
        line_bytes: cache.line,
        sets: cache.sets,
        colors: cache.colors(),
        answer: finding.answer,
        slowdown,
        indexing: finding.indexing,
        obstacle: finding.obstacle.map(obstacle_name),
        memory: finding.obstacle.and_then(memory),
    }
}

fn obstacle_name(obstacle: ColorObstacle) -> &'static str {
    match obstacle {
        ColorObstacle::OneColor => "one-color",
        ColorObstacle::UnknownBelow => "unknown-level-below",
        ColorObstacle::FewColors => "too-few-colors",
        ColorObstacle::NotConfirmed => "not-confirmed",
        ColorObstacle::FewPages => "too-few-pages",
        ColorObstacle::Memory { .. } => "too-little-memory",
    }
}

/// The memory needed to choose pages from, where that is too much, and the memory available.
fn memory(obstacle: ColorObstacle) -> Option<impl Serialize> {
    let ColorObstacle::Memory { needed, available } = obstacle else { return None };
    Some(object! { needed_bytes: needed, available_bytes: available })
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;

    use super::*;
    use crate::report::samples;

    #[test]
    fn colors_have_their_fields() {
        insta::assert_snapshot!(color(&samples::color_probe()));
    }

    #[test]
    fn what_cannot_be_measured_has_its_word() {
        let mut probe = samples::color_probe();
        let (needed, available) = (Bytes(3), Bytes(4));
        for (obstacle, fields) in [
            (ColorObstacle::UnknownBelow, r#""obstacle":"unknown-level-below","memory":null"#),
            (ColorObstacle::FewColors, r#""obstacle":"too-few-colors","memory":null"#),
            (
                ColorObstacle::Memory { needed, available },
                r#""obstacle":"too-little-memory","memory":{"needed_bytes":3,"available_bytes":4}"#,
            ),
        ] {
            probe.findings[0].obstacle = Some(obstacle);
            assert!(color(&probe).contains(fields), "{fields}");
        }
    }
}
