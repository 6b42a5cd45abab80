//! A trial as an SVG picture: the speed in each window, and the interval for the gain over time.
//!
//! Owns: its form. Never touches: files.

use plotters::coord::Shift;
use plotters::prelude::*;
use trial::{Arm, Trial};

use super::picture::{DrawError, FONT, prepare_font};

const SIZE: (u32, u32) = (900, 640);
const ARMS: [(Arm, &str, RGBColor); 2] =
    [(Arm::Base, "base pages", RGBColor(154, 99, 36)), (Arm::Huge, "huge pages", RGBColor(44, 156, 75))];
const BAND: RGBColor = RGBColor(67, 99, 216);

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws it; None without a pair of windows. Errors: it cannot be drawn.
pub fn draw(trial: &Trial) -> Result<Option<String>, DrawError> {
    if trial.windows.len() < 2 {
        return Ok(None);
    }
    prepare_font()?;
    let mut svg = String::new();
    draw_on(&SVGBackend::with_string(&mut svg, SIZE).into_drawing_area(), trial)
        .map_err(|error| DrawError(error.to_string()))?;
    Ok(Some(svg))
}

fn draw_on(area: &DrawingArea<SVGBackend, Shift>, trial: &Trial) -> Drawn {
    area.fill(&WHITE)?;
    let (above, below) = area.split_vertically(SIZE.1 / 2);
    let minutes = (trial.elapsed.seconds() / 60.0).max(1.0 / 60.0);
    windows(&above, trial, minutes)?;
    course(&below, trial, minutes)?;
    area.present()?;
    Ok(())
}

fn windows(area: &DrawingArea<SVGBackend, Shift>, trial: &Trial, minutes: f64) -> Drawn {
    let most = trial.windows.iter().map(|window| window.per_cpu_second()).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("work for each second of CPU time, by windows", (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(0.0..minutes, 0.0..most * 1.1)?;
    let mut mesh = chart.configure_mesh();
    mesh.max_light_lines(0).label_style((FONT, 14)).x_desc("minutes").draw()?;
    for (arm, name, color) in ARMS {
        let of_arm = trial.windows.iter().filter(|window| window.arm == arm);
        let dots = of_arm
            .map(|window| Circle::new((window.began_ns.seconds() / 60.0, window.per_cpu_second()), 4, color.filled()));
        chart.draw_series(dots)?.label(name).legend(move |(x, y)| Circle::new((x + 7, y), 4, color.filled()));
    }
    let mut key = chart.configure_series_labels();
    key.position(SeriesLabelPosition::LowerRight).background_style(WHITE.mix(0.8)).label_font((FONT, 14)).draw()?;
    Ok(())
}

fn course(area: &DrawingArea<SVGBackend, Shift>, trial: &Trial, minutes: f64) -> Drawn {
    let percent = |share: f64| (100.0 * share).clamp(-100.0, 200.0);
    let points: Vec<(f64, [f64; 3])> = trial
        .course
        .iter()
        .map(|(at, change)| (at.seconds() / 60.0, [change.low, change.estimate, change.high].map(percent)))
        .collect();
    let low = points.iter().map(|(_, [low, ..])| *low).fold(-5.0, f64::min);
    let high = points.iter().map(|(_, [.., high])| *high).fold(5.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("gain so far, and the interval that holds it", (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(0.0..minutes, low * 1.1..high * 1.1)?;
    let mut mesh = chart.configure_mesh();
    mesh.max_light_lines(0).label_style((FONT, 14)).x_desc("minutes").y_desc("%").draw()?;
    chart.draw_series(LineSeries::new([(0.0, 0.0), (minutes, 0.0)], BLACK))?;
    let there = points.iter().map(|(at, [low, ..])| (*at, *low));
    let back = points.iter().rev().map(|(at, [.., high])| (*at, *high));
    chart.draw_series([Polygon::new(there.chain(back).collect::<Vec<_>>(), BAND.mix(0.2))])?;
    chart.draw_series(LineSeries::new(
        points.iter().map(|(at, [_, estimate, _])| (*at, *estimate)),
        BAND.stroke_width(2),
    ))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples::trial_of;

    #[test]
    fn every_window_is_a_dot() {
        let (trial, _) = trial_of(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]);
        let svg = draw(&trial).unwrap().unwrap();
        // One more of each color in the key.
        assert_eq!(svg.matches("<circle").count(), 12 + 2);
        assert!(svg.contains("<polygon") && svg.contains("huge pages") && svg.contains("minutes"));
        assert!(draw(&Trial::default()).unwrap().is_none());
    }
}
