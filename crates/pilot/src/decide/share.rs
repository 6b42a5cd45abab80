//! Dividing a huge-page budget that is too small for all programs.
//!
//! Owns: the two ways of dividing it. Never touches: which regions of a program use its quota; that is [`crate::decide::decide`].
//!
//! *Benefit*: the regions with the most page walks get it, whichever program they belong to. *Share*: each program gets a quota by its weight
//! (max-min fair, as in Ingens: Kwon et al., OSDI 2016), and what it cannot use goes to the others. In both ways, huge pages that their program does
//! not use give it no claim, and the order of arrival plays no part.

use serde::{Deserialize, Serialize};

/// How a budget is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fairness {
    /// By benefit: the most page walks saved in total.
    #[default]
    Benefit,
    /// By weight: a quota for each program.
    Share,
}

/// What one program could do with huge pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// Its weight relative to the others; above 0.
    pub weight: f64,
    /// Page walks a second saved by each huge page that it has and uses.
    pub held: Vec<f64>,
    /// Page walks a second that each further huge page would save.
    pub wanted: Vec<f64>,
}

/// A region takes another's huge page only if it saves this many times as many walks: moving costs two steps, rates scatter by a quarter, and a
/// program runs up to 1.7 times as fast when part of it is huge, so the rest seems hotter than what was promoted before.
pub(super) const WORTH_A_MOVE: f64 = 2.5;

/// How many huge pages of the budget each may have, in the order of the claims. The total never exceeds the budget, and nobody gets more than it can
/// use.
pub fn divide(budget: u64, claims: &[Demand], fairness: Fairness) -> Vec<u64> {
    match fairness {
        Fairness::Benefit => by_benefit(budget, claims),
        Fairness::Share => by_weight(budget, claims),
    }
}

fn by_benefit(budget: u64, claims: &[Demand]) -> Vec<u64> {
    let mut ranked: Vec<(f64, usize)> = Vec::new();
    for (owner, claim) in claims.iter().enumerate() {
        ranked.extend(claim.held.iter().map(|walks| (walks * WORTH_A_MOVE, owner)));
        ranked.extend(claim.wanted.iter().map(|&walks| (walks, owner)));
    }
    ranked.sort_by(|(left, one), (right, other)| right.total_cmp(left).then(one.cmp(other)));
    let mut quotas = vec![0; claims.len()];
    ranked.iter().take(usize::try_from(budget).unwrap_or(usize::MAX)).for_each(|&(_, owner)| quotas[owner] += 1);
    quotas
}

/// Fills all evenly by weight until each is full or the budget is spent.
fn by_weight(budget: u64, claims: &[Demand]) -> Vec<u64> {
    let room = |claim: &Demand| (claim.held.len() + claim.wanted.len()) as u64;
    let mut quotas = vec![0u64; claims.len()];
    let mut left = budget;
    loop {
        let thirsty: Vec<usize> = (0..claims.len()).filter(|&owner| quotas[owner] < room(&claims[owner])).collect();
        let weights: f64 = thirsty.iter().map(|&owner| claims[owner].weight).sum();
        if left == 0 || thirsty.is_empty() {
            return quotas;
        }
        let mut given = 0;
        for &owner in &thirsty {
            let claim = &claims[owner];
            let quota = (left as f64 * claim.weight / weights) as u64;
            let quota = quota.min(room(claim) - quotas[owner]).min(left - given);
            quotas[owner] += quota;
            given += quota;
        }
        // Less than one for each is left: the one furthest behind gets it.
        if given == 0 {
            let behind = |&owner: &usize| quotas[owner] as f64 / claims[owner].weight;
            let mut by_lag = thirsty;
            by_lag.sort_by(|one, other| behind(one).total_cmp(&behind(other)).then(one.cmp(other)));
            by_lag.into_iter().take(left as usize).for_each(|owner| quotas[owner] += 1);
            return quotas;
        }
        left -= given;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn claim(weight: f64, held: &[f64], wanted: &[f64]) -> Demand {
        Demand { weight, held: held.to_vec(), wanted: wanted.to_vec() }
    }

    #[test]
    fn by_benefit_the_hottest_regions_get_it() {
        let claims = [claim(1.0, &[], &[9.0, 5.0, 1.0]), claim(1.0, &[], &[8.0, 7.0, 6.0])];
        assert_eq!(divide(4, &claims, Fairness::Benefit), [1, 3]);
        assert_eq!(divide(10, &claims, Fairness::Benefit), [3, 3]);
    }

    #[test]
    fn by_benefit_a_huge_page_moves_only_for_clearly_more() {
        let claims = |wanted| [claim(1.0, &[10.0, 10.0], &[]), claim(1.0, &[], &[wanted])];
        assert_eq!(divide(2, &claims(24.0), Fairness::Benefit), [2, 0]);
        assert_eq!(divide(2, &claims(26.0), Fairness::Benefit), [1, 1]);
    }

    #[test]
    fn by_weight_each_gets_its_part_whoever_came_first() {
        let claims = [claim(1.0, &[9.0; 100], &[]), claim(1.0, &[], &[1.0; 100])];
        assert_eq!(divide(100, &claims, Fairness::Share), [50, 50]);
        let weighted = [claim(1.0, &[], &[1.0; 100]), claim(3.0, &[9.0; 100], &[])];
        assert_eq!(divide(100, &weighted, Fairness::Share), [25, 75]);
    }

    #[test]
    fn by_weight_what_one_has_no_use_for_goes_to_the_others() {
        let claims = [claim(1.0, &[], &[1.0; 10]), claim(1.0, &[], &[1.0; 100]), claim(2.0, &[], &[1.0; 100])];
        assert_eq!(divide(100, &claims, Fairness::Share), [10, 30, 60]);
        assert_eq!(divide(2, &claims, Fairness::Share), [1, 0, 1], "whole pages");
    }

    proptest! {
        #[test]
        fn nothing_is_given_twice_nor_kept_back(
            budget in 0..200u64,
            claims in prop::collection::vec((0.1..10.0f64, prop::collection::vec(0.0..1e6f64, 0..40),
                                             prop::collection::vec(0.0..1e6f64, 0..40)), 0..8),
            share: bool,
        ) {
            let claims: Vec<Demand> =
                claims.into_iter().map(|(weight, held, wanted)| Demand { weight, held, wanted }).collect();
            let fairness = if share { Fairness::Share } else { Fairness::Benefit };
            let quotas = divide(budget, &claims, fairness);
            let room: Vec<u64> = claims.iter().map(|claim| (claim.held.len() + claim.wanted.len()) as u64).collect();
            prop_assert!(quotas.iter().zip(&room).all(|(quota, room)| quota <= room));
            prop_assert_eq!(quotas.iter().sum::<u64>(), budget.min(room.iter().sum()));
        }

        #[test]
        fn equals_get_equal_parts(budget in 0..200u64, room in 1..80usize, programs in 1..6usize) {
            let claims = vec![Demand { weight: 1.0, held: Vec::new(), wanted: vec![1.0; room] }; programs];
            let quotas = divide(budget, &claims, Fairness::Share);
            prop_assert!(quotas.iter().max().unwrap() - quotas.iter().min().unwrap() <= 1);
        }
    }
}
