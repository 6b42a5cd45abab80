//! Page colors: how many there are by level, and whether they are real.

use color::Probe;
use color::answer::{Answer, ColorObstacle, Finding, Indexing};
use heat::units::Bytes;
use serde::Serialize;

use super::{VERSION, line};

#[derive(Serialize)]
struct ColorDocument<'a> {
    version: u32,
    cpu: u32,
    model: &'a str,
    virtual_machine: bool,
    coloring_can_help: bool,
    caches: Vec<CacheFields>,
}

#[derive(Serialize)]
struct CacheFields {
    level: u32,
    size_bytes: Bytes,
    ways: u32,
    line_bytes: Bytes,
    sets: u64,
    colors: u32,
    answer: &'static str,
    slowdown: Option<SlowdownFields>,
    indexing: Option<&'static str>,
    obstacle: Option<&'static str>,
    memory: Option<MemoryFields>,
}

/// How many times as long reads of pages that share a color take.
#[derive(Serialize)]
struct SlowdownFields {
    estimate: f64,
    low: f64,
    high: f64,
    confidence: f64,
    rounds: usize,
}

/// What pages to choose from would take, where that is too much, and what there is.
#[derive(Serialize)]
struct MemoryFields {
    needed_bytes: Bytes,
    available_bytes: Bytes,
}

/// What was found out of page colors.
pub fn color(probe: &Probe) -> String {
    line(&ColorDocument {
        version: VERSION,
        cpu: probe.cpu,
        model: &probe.model,
        virtual_machine: probe.virtual_machine,
        coloring_can_help: probe.coloring_can_help(),
        caches: probe.findings.iter().map(cache_fields).collect(),
    })
}

fn cache_fields(finding: &Finding) -> CacheFields {
    let Finding { cache, answer, slowdown, indexing, obstacle } = *finding;
    CacheFields {
        level: cache.level,
        size_bytes: cache.size,
        ways: cache.ways,
        line_bytes: cache.line,
        sets: cache.sets,
        colors: cache.colors(),
        answer: match answer {
            Answer::Real => "real",
            Answer::NotObservable => "not-observable",
            Answer::Undecided => "undecided",
        },
        slowdown: slowdown.map(|interval| SlowdownFields {
            estimate: interval.estimate,
            low: interval.low,
            high: interval.high,
            confidence: interval.confidence,
            rounds: interval.pairs,
        }),
        indexing: indexing.map(|indexing| match indexing {
            Indexing::BareBits => "bare-bits",
            Indexing::HashedBySets | Indexing::Hashed => "hashed",
            Indexing::HashedOrHidden => "hashed-or-hidden",
        }),
        obstacle: obstacle.map(|obstacle| match obstacle {
            ColorObstacle::OneColor => "one-color",
            ColorObstacle::UnknownBelow => "unknown-level-below",
            ColorObstacle::FewColors => "too-few-colors",
            ColorObstacle::NotConfirmed => "not-confirmed",
            ColorObstacle::FewPages => "too-few-pages",
            ColorObstacle::Memory { .. } => "too-little-memory",
        }),
        memory: obstacle.and_then(memory_fields),
    }
}

fn memory_fields(obstacle: ColorObstacle) -> Option<MemoryFields> {
    let ColorObstacle::Memory { needed, available } = obstacle else { return None };
    Some(MemoryFields { needed_bytes: needed, available_bytes: available })
}

#[cfg(test)]
mod tests {
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
