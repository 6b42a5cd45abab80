//! How accessed bits were cleared.

use heat::clearing::Clearing;
use serde::Serialize;

/// The same fields in every document. Rates are null where nobody needed them, or where the kernel does not report them.
pub(super) fn clearing(clearing: Clearing) -> impl Serialize {
    object! {
        method: clearing.method,
        reason: clearing.reason,
        expected_ns: clearing.expected,
        bits_set_again_ns: clearing.bits_set_again,
        sample_ns: clearing.calls.map(|calls| calls.length),
        faults_per_second: clearing.calls.map(|calls| calls.faults_per_second()),
        mmap_calls_per_second: clearing.calls.and_then(|calls| calls.mmap_calls_per_second()),
        calls_stalled: clearing.calls.map(|calls| calls.stalled(clearing.expected)),
        reclaim: clearing.reclaim,
    }
}
