//! Colours that people with any kind of color vision can tell apart, in grey too where there are few.
//!
//! Owns: which colours. Never touches: what they mean.

use plotters::style::RGBColor;

/// For lines, dots and bars: after the palette of Okabe and Ito (2008), without its faint yellow.
pub const COLORS: [RGBColor; 10] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(214, 193, 0),
    RGBColor(0, 84, 148),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(120, 60, 160),
    RGBColor(140, 140, 140),
];

/// Base pages, wherever they stand beside huge pages.
pub const BASE_PAGES: RGBColor = RGBColor(213, 94, 0);
/// Huge pages, wherever they stand beside base pages.
pub const HUGE_PAGES: RGBColor = RGBColor(0, 84, 148);

/// From the least to the most: each is darker than the one before, so that grey shows the order, too.
const SCALE: [[f64; 3]; 5] =
    [[254.0, 232.0, 160.0], [254.0, 178.0, 76.0], [240.0, 90.0, 40.0], [176.0, 0.0, 38.0], [80.0, 0.0, 50.0]];

/// A colour on a continuous scale, from pale yellow (0) over red to dark purple (1).
pub fn on_scale(place: f64) -> RGBColor {
    let place = place.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let step = (place as usize).min(SCALE.len() - 2);
    let share = place - step as f64;
    let mix = |part: usize| (SCALE[step][part] + (SCALE[step + 1][part] - SCALE[step][part]) * share).round() as u8;
    RGBColor(mix(0), mix(1), mix(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rec. 709 luma, 0 to 255.
    fn brightness(RGBColor(red, green, blue): RGBColor) -> f64 {
        0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
    }

    #[test]
    fn the_scale_grows_darker_all_the_way() {
        let brightnesses: Vec<f64> = (0..=100).map(|place| brightness(on_scale(f64::from(place) / 100.0))).collect();
        assert!(brightnesses.windows(2).all(|pair| pair[1] < pair[0]), "{brightnesses:?}");
        assert!(brightnesses[0] - brightnesses[100] > 180.0);
        assert_eq!((on_scale(-1.0), on_scale(2.0)), (on_scale(0.0), on_scale(1.0)));
    }

    #[test]
    fn base_and_huge_pages_differ_in_grey_too() {
        assert!((brightness(BASE_PAGES) - brightness(HUGE_PAGES)).abs() > 40.0);
    }
}
