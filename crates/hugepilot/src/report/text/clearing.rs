//! How accessed bits were cleared, why that way, and what that affects.

use heat::Heat;
use heat::clearing::{ACCEPTED_STALL, CallSample, ClearReason, Clearing};
use heat::units::Nanos;
use pilot::words::{count, count_of};

/// How bits were cleared for an observation, and how long calls waited if that was longer than is accepted.
pub(super) fn cleared(heat: &Heat) -> Vec<String> {
    let Some(of_heat) = &heat.clearing else { return Vec::new() };
    let stall = heat.cost.longest_stall;
    let long = stall > ACCEPTED_STALL.max(of_heat.expected);
    let waited = long.then(|| format!("clearing took longer: page faults and mmap calls waited for up to {stall}"));
    clearing(of_heat).into_iter().chain(waited).collect()
}

/// One line for the method, and a warning where it harms reclaim.
pub(super) fn clearing(clearing: &Clearing) -> Vec<String> {
    let mut lines = vec![way(clearing)];
    lines.extend(clearing.reclaim.map(|reclaim| {
        format!(
            "warning: {reclaim}, and clearing took from reclaim what tells it which pages are in use; \
             --tracker damon-vaddr and idle-page leave it that"
        )
    }));
    lines
}

fn way(clearing: &Clearing) -> String {
    let calls = clearing.calls.unwrap_or_default();
    let expected = rounded(clearing.expected);
    match clearing.reason {
        ClearReason::Short => {
            format!(
                "cleared at once (clear_refs, about {expected} expected; up to 50 ms are accepted, and a busy machine takes longer)"
            )
        }
        ClearReason::StallAllowed => format!("cleared at once (clear_refs, about {expected}), as --allow-stall asks"),
        ClearReason::SlicesWanted => "cleared in slices (MADV_COLD), as asked".to_owned(),
        ClearReason::Sampled => "cleared in slices (MADV_COLD): only those of the sample".to_owned(),
        ClearReason::OneOfMany => format!(
            "cleared at once (clear_refs, about {expected}): slices would leave out memory that other processes map, too"
        ),
        ClearReason::FewCalls => format!(
            "cleared at once (clear_refs, about {expected}): the program makes {} a second, so about {} would wait",
            rates(&calls),
            count_of(calls.stalled(clearing.expected).round() as u64, "call"),
        ),
        ClearReason::BitsSetAgain => format!(
            "cleared in slices (MADV_COLD), spread over time: at once the program would lose up to {} in setting accessed bits again; \
             --allow-stall accepts that",
            rounded(clearing.bits_set_again)
        ),
        ClearReason::ManyCalls => format!(
            "cleared in slices (MADV_COLD): the program makes {} a second, and at once each would wait up to {expected}; \
             --allow-stall accepts that",
            rates(&calls)
        ),
        ClearReason::UnknownCalls => format!(
            "cleared in slices (MADV_COLD): this kernel does not count mmap calls (tracepoint mmap_lock_start_locking), and at \
             once each would wait up to {expected}; --allow-stall accepts that"
        ),
    }
}

fn rates(calls: &CallSample) -> String {
    let faults = count_of(calls.faults_per_second().round() as u64, "page fault");
    match calls.mmap_calls_per_second() {
        Some(calls) => format!("{faults} and {}", count_of(calls.round() as u64, "mmap call")),
        None => format!("{faults} and an unknown number of mmap calls"),
    }
}

/// Rounded to whole milliseconds, because it is an estimate.
fn rounded(time: Nanos) -> String {
    format!("{} ms", count(time.0.div_ceil(1_000_000)))
}

#[cfg(test)]
mod tests {
    use heat::samples::{clearing as sample, heat_of};
    use heat::{Cost, Reclaim};

    use super::*;

    #[test]
    fn every_reason_is_told_with_its_figures() {
        let reasons = [
            ClearReason::Short,
            ClearReason::StallAllowed,
            ClearReason::SlicesWanted,
            ClearReason::Sampled,
            ClearReason::OneOfMany,
            ClearReason::FewCalls,
            ClearReason::ManyCalls,
            ClearReason::UnknownCalls,
            ClearReason::BitsSetAgain,
        ];
        let lines = reasons.map(|reason| Clearing { reason, method: reason.method(), ..sample() });
        let told: Vec<String> = lines.iter().flat_map(clearing).collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn a_stall_above_what_is_accepted_is_told() {
        let told = |longest_stall| {
            let cost = Cost { longest_stall, ..Cost::default() };
            let clearing = Some(Clearing { expected: Nanos(60_000_000), ..sample() });
            cleared(&Heat { cost, clearing, ..heat_of(Vec::new()) }).join("\n").contains("waited for up to")
        };
        assert_eq!([60_000_000, 61_000_000].map(|stall| told(Nanos(stall))), [false, true]);
        assert!(cleared(&heat_of(Vec::new())).is_empty());
    }

    #[test]
    fn what_reclaim_loses_is_a_warning() {
        let lines = clearing(&Clearing { reclaim: Some(Reclaim::SwapInUse), ..sample() });
        assert!(lines.len() == 2 && lines[1].starts_with("warning: swap is in use, and clearing took"), "{lines:?}");
    }
}
