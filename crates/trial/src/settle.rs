//! Whether a program's speed has settled after a switch.
//!
//! Owns: that question. Never touches: the program.

/// Speeds that are compared with those before.
const COMPARED: usize = 2;
/// Means that differ by less count as equal.
const NEAR: f64 = 0.03;

/// Whether the last speeds are like those before: their means differ by no more than the speeds themselves do.
pub(crate) fn has_settled(speeds: &[f64]) -> bool {
    let Some(from) = speeds.len().checked_sub(2 * COMPARED) else { return false };
    let (before, last) = speeds[from..].split_at(COMPARED);
    let mean = |speeds: &[f64]| speeds.iter().sum::<f64>() / speeds.len() as f64;
    let spread = |speeds: &[f64]| {
        let (low, high) =
            speeds.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &speed| (low.min(speed), high.max(speed)));
        high - low
    };
    let difference = (mean(last) - mean(before)).abs();
    difference <= (NEAR * mean(last)).max(spread(before).max(spread(last)) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_that_still_rises_has_not_settled() {
        assert!(!has_settled(&[1.0, 1.0, 1.0]), "too short");
        assert!(has_settled(&[1.0, 1.01, 1.0, 1.02]));
        assert!(!has_settled(&[0.5, 0.6, 0.9, 1.0]));
        assert!(has_settled(&[0.2, 0.5, 0.6, 0.9, 1.0, 1.01, 1.0, 1.02]), "in the end");
        assert!(has_settled(&[0.8, 1.2, 1.1, 0.9]), "as much as it always varies");
    }
}
