//! How accessed bits were cleared.

use serde::Serialize;

use heat::Reclaim;
use heat::clearing::{ClearMethod, ClearReason, Clearing};
use heat::units::Nanos;

/// The same in every document that has it. Rates are null where nobody had to know, or where the kernel does not tell.
#[derive(Serialize)]
pub(super) struct ClearingFields {
    method: &'static str,
    reason: &'static str,
    expected_ns: Nanos,
    bits_set_again_ns: Nanos,
    sample_ns: Option<Nanos>,
    faults_per_second: Option<f64>,
    mmap_calls_per_second: Option<f64>,
    calls_stalled: Option<f64>,
    reclaim: Option<&'static str>,
}

pub(super) fn clearing_fields(clearing: Clearing) -> ClearingFields {
    let Clearing { method, reason, expected, bits_set_again, calls, reclaim } = clearing;
    ClearingFields {
        method: match method {
            ClearMethod::ClearRefs => "clear_refs",
            ClearMethod::MadvCold => "madv_cold",
        },
        reason: match reason {
            ClearReason::Short => "short",
            ClearReason::FewCalls => "few_calls",
            ClearReason::ManyCalls => "many_calls",
            ClearReason::UnknownCalls => "unknown_calls",
            ClearReason::BitsSetAgain => "bits_set_again",
            ClearReason::StallAllowed => "stall_allowed",
            ClearReason::SlicesWanted => "slices_wanted",
            ClearReason::Sampled => "sampled",
            ClearReason::OneOfMany => "one_of_many",
        },
        expected_ns: expected,
        bits_set_again_ns: bits_set_again,
        sample_ns: calls.map(|calls| calls.length),
        faults_per_second: calls.map(|calls| calls.faults_per_second()),
        mmap_calls_per_second: calls.and_then(|calls| calls.mmap_calls_per_second()),
        calls_stalled: calls.map(|calls| calls.stalled(expected)),
        reclaim: reclaim.map(|reclaim| match reclaim {
            Reclaim::MemoryShort => "memory_short",
            Reclaim::SwapInUse => "swap_in_use",
        }),
    }
}
