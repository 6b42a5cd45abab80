//! What to expect of a promotion, printed before it begins.
//!
//! Owns: these words. Never touches: how it is estimated.

use heat::units::{Nanos, Slowdown};
use pilot::forecast::Forecast;
use pilot::words::count_of;

use super::{joined, plan};
use crate::report::Expectation;

/// What to expect, printed before acting. `forecast`: None if nothing tells what the program gains, as of a virtual machine.
pub fn expectation(expectation: &Expectation, forecast: Option<Forecast>) -> String {
    let gain = forecast.map(|forecast| format!("expected gain: {}", plan::gain(forecast)));
    let nevertheless = forecast.and_then(|forecast| nevertheless(forecast, "is"));
    joined([expected(expectation)].into_iter().chain(gain).chain(nevertheless).collect())
}

/// What is done although the gain is unknown, and what would make it known; None where it is known. `is`: or `would be`.
pub(super) fn nevertheless(forecast: Forecast, is: &str) -> Option<String> {
    let next_step = match forecast {
        Forecast::Gain(..) => return None,
        Forecast::Idle => "; --window 10s watches for longer, and tells the gain if the program works meanwhile",
        // Why it is unknown says the next step.
        Forecast::Contended(_) => "",
    };
    Some(format!("what is walked most {is} promoted all the same, though its gain is unknown{next_step}"))
}

pub(super) fn expected(expectation: &Expectation) -> String {
    format!(
        "expect {}, {} of growth, about {} on a machine that does little else, several times as long on a busy one; meanwhile the program is to be \
         slower by {} at most on average, in stalls of about {} (as collapses of memory of our own took)",
        count_of(expectation.regions, "region"),
        expectation.growth,
        expectation.elapsed,
        expectation.max_slowdown,
        expectation.longest_stall
    )
}

/// What `--fast` will cost the program, printed before anything is promoted.
pub fn fast(max_slowdown: Slowdown, stall: Nanos) -> String {
    format!(
        "hugepilot: promoting fast: the program may lose {max_slowdown} of its speed meanwhile, in stalls of about {stall} (as collapses of memory \
         of our own took; a busy machine has longer ones); a smaller --max-slowdown is gentler\n"
    )
}

#[cfg(test)]
mod tests {
    use heat::units::Bytes;
    use pilot::decide::GainPercent;
    use pilot::past_trials::EstimatedFrom;

    use super::*;

    #[test]
    fn where_the_gain_is_unknown_it_says_that_it_promotes_nevertheless() {
        let expected = Expectation {
            regions: 2,
            growth: Bytes(0),
            elapsed: Nanos(4_200_000),
            max_slowdown: Slowdown::ASKED_FOR,
            longest_stall: Nanos(2_100_000),
        };
        let told = |forecast| expectation(&expected, forecast);
        let nevertheless = "\nwhat is walked most is promoted all the same, though its gain is unknown";
        let idle = told(Some(Forecast::Idle));
        assert!(
            idle.contains("gain: unknown: the process used no CPU time") && idle.contains("--window 10s"),
            "{idle}"
        );
        assert!(idle.contains(nevertheless), "{idle}");
        let contended = told(Some(Forecast::Contended(0.9)));
        assert!(contended.contains("90 % of that time; ask again when less is running"), "{contended}");
        assert!(contended.ends_with(&format!("{nevertheless}\n")), "{contended}");
        let gain = GainPercent { low: 1.0, likely: 2.0, high: 3.0 };
        let known = told(Some(Forecast::Gain(gain, EstimatedFrom::Model)));
        assert!(!known.contains("all the same") && !told(None).contains("all the same"), "{known}");
    }
}
