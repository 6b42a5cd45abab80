//! Limits of a set of targets that the daemon's own limits, which hold for all programs, make smaller.
//!
//! Owns: which those are, and what the answer to `set-targets` says of them. Never touches: the limits themselves.

use heat::units::{Bytes, SizeOrShare, Slowdown};
use pilot::engine::shared_state::State;
use pilot::scope::Assignment;
use serde::{Deserialize, Serialize};

use crate::control::target_set::TargetSet;

/// A limit of one target that does not hold as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CappedLimit {
    /// Which target of the set, counted from 1.
    pub target: u64,
    /// Which of its limits.
    pub limit: LimitName,
    /// As it was asked for.
    pub asked: String,
    /// What holds in its place.
    pub to: String,
    /// Why, and the next step.
    pub why: String,
}

/// A limit, named as in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "as in a target")]
pub enum LimitName {
    MaxGrowth,
    MaxHuge,
    MaxSlowdown,
}

impl LimitName {
    /// As in the daemon's configuration.
    pub fn key(self) -> &'static str {
        match self {
            LimitName::MaxGrowth => "max-growth",
            LimitName::MaxHuge => "max-huge",
            LimitName::MaxSlowdown => "max-slowdown",
        }
    }
}

/// The limits of the set, with what it assigns, that are larger than the daemon's own. A share of a process has no size yet, and is never among them;
/// nor is anything of a target that is left alone.
pub(super) fn capped(set: &TargetSet, assignments: &[Assignment], state: &State) -> Vec<CappedLimit> {
    let each = set.targets.iter().zip(assignments).zip(1..).filter(|((_, assigned), _)| assigned.mode.is_some());
    let mut capped = Vec::new();
    for ((target, assigned), number) in each {
        let mut note = |limit: LimitName, asked: &Option<String>, to: Option<String>| {
            if let (Some(asked), Some(to)) = (asked.clone(), to) {
                capped.push(CappedLimit { target: number, limit, asked, why: why(limit, &to), to });
            }
        };
        let growth = smaller_size(assigned.max_growth, state.budget.max_growth_bytes);
        note(LimitName::MaxGrowth, &target.max_growth, growth);
        let huge = smaller_size(assigned.max_huge, state.budget.max_huge_bytes);
        note(LimitName::MaxHuge, &target.max_huge, huge);
        let all = Slowdown(state.max_slowdown);
        let slowdown = assigned.max_slowdown.filter(|own| *own > all).map(|_| all.to_string());
        note(LimitName::MaxSlowdown, &target.max_slowdown, slowdown);
    }
    capped
}

/// The size for all programs, where it is smaller than this target's own.
fn smaller_size(own: Option<SizeOrShare>, all: Option<Bytes>) -> Option<String> {
    let Some(SizeOrShare::Size(own)) = own else { return None };
    all.filter(|all| own > *all).map(|all| all.to_string())
}

fn why(limit: LimitName, to: &str) -> String {
    let key = limit.key();
    let of = if limit == LimitName::MaxSlowdown { "each program" } else { "all programs together" };
    format!("{key} in the daemon's configuration is {to} for {of}; raise it there, or ask for less")
}

#[cfg(test)]
mod tests {
    use pilot::engine::shared_state::BudgetState;

    use super::*;
    use crate::control::target_set::{GroupMode, GroupTarget};

    fn of(mode: GroupMode, limits: [&str; 3]) -> GroupTarget {
        let [max_growth, max_huge, max_slowdown] = limits.map(|limit| Some(limit.to_owned()));
        GroupTarget {
            cgroups: vec!["/a".to_owned()],
            mode,
            max_growth,
            max_huge,
            max_slowdown,
            ..GroupTarget::default()
        }
    }

    fn told(target: GroupTarget, budget: BudgetState) -> Vec<CappedLimit> {
        let set = TargetSet { owner: "mine".to_owned(), targets: vec![target] };
        let state = State { max_slowdown: 0.01, budget, ..State::default() };
        capped(&set, &set.assignments().unwrap(), &state)
    }

    fn sizes() -> BudgetState {
        BudgetState {
            max_growth_bytes: Some(Bytes(64 << 20)),
            max_huge_bytes: Some(Bytes(1 << 30)),
            ..BudgetState::default()
        }
    }

    #[test]
    fn what_is_larger_than_the_daemons_own_is_told_with_what_holds() {
        let all = told(of(GroupMode::Promote, ["65M", "2G", "5%"]), sizes());
        let short: Vec<_> = all.iter().map(|each| (each.limit, each.asked.as_str(), each.to.as_str())).collect();
        let expected = [
            (LimitName::MaxGrowth, "65M", "64 MiB"),
            (LimitName::MaxHuge, "2G", "1 GiB"),
            (LimitName::MaxSlowdown, "5%", "1%"),
        ];
        assert_eq!(short, expected);
        assert!(all.iter().all(|each| each.target == 1), "{all:?}");
        assert!(all[0].why.starts_with("max-growth in the daemon's configuration is 64 MiB for all"), "{}", all[0].why);
        assert!(all[2].why.contains("is 1% for each program; raise it there"), "{}", all[2].why);
    }

    #[test]
    fn what_holds_as_it_was_asked_for_is_not_told() {
        assert_eq!(told(of(GroupMode::Observe, ["64M", "1G", "1%"]), sizes()), []);
        assert_eq!(told(of(GroupMode::Promote, ["50%", "90%", "0.5%"]), sizes()), [], "shares");
        assert_eq!(told(of(GroupMode::Promote, ["2G", "2G", "1%"]), BudgetState::default()), [], "no such limits");
        assert_eq!(told(of(GroupMode::Off, ["2G", "2G", "5%"]), sizes()), [], "left alone");
    }
}
