//! Raw results: every trial, as saved in a file, and the report drawn from them.
//!
//! Owns: the format of that file, `"version": 1`, and when a forecast holds. Never touches: measurements.

use heat::units::{Bytes, Nanos};
use pilot::decide::GainPercent;
use pilot::forecast::ForecastBasis;
use serde::{Deserialize, Serialize};
use trial::SpeedChange;

use crate::kept::VERSION;
use crate::machine::MachineDescription;
use crate::table::{head, table};
use crate::verdict::{FigureVerdict, JudgedFigure};

/// The widest range that a forecast may have: 1 + its high end over 1 + its low end.
const WIDEST: f64 = 1.35;
/// A gain that is known less closely than this on either side tells nothing of a forecast.
const RESOLVED: f64 = 0.1;

/// Nothing would be promoted, which is a forecast, too.
const NOTHING: GainPercent = GainPercent { low: 0.0, likely: 0.0, high: 0.0 };

/// One program on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramTrial {
    /// The name of its definition.
    pub(super) program: String,
    /// What it is and does.
    pub(super) what: String,
    /// What `hugepilot trial --json` printed.
    pub(super) trial: Option<serde_json::Value>,
    /// Why there was no trial, as hugepilot said it.
    pub(super) refused: Option<String>,
}

/// What is read of a trial.
#[derive(Debug, Deserialize)]
struct TrialOutput {
    change: Option<SpeedChange>,
    by_clock: Option<SpeedChange>,
    expected_gain_percent: Option<GainPercent>,
    expected_from: Option<ForecastBasis>,
    growth: Option<f64>,
    pairs: usize,
    seconds: f64,
    switched_bytes: Bytes,
    #[serde(default)]
    longest_stall_ns: Option<Nanos>,
    #[serde(default)]
    split_pages_over_own: Option<SpeedChange>,
    #[serde(default)]
    huge_pages_over_own: Option<SpeedChange>,
}

/// One file of raw results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramsRecord {
    kind: String,
    version: u32,
    /// The machine measured.
    pub machine: MachineDescription,
    /// In the order in which they ran.
    pub(super) trials: Vec<ProgramTrial>,
}

impl ProgramsRecord {
    /// A record without trials.
    pub(super) fn new(machine: MachineDescription) -> Self {
        Self { kind: "programs".to_owned(), version: VERSION, machine, trials: Vec::new() }
    }

    /// The same with the trials of another run.
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.trials.extend(other.trials);
        self
    }

    /// The whole report.
    pub fn text(&self) -> String {
        let mut rows = vec![head(
            "program | forecast | then | gain | by the clock | pairs | took | switched | longest stall | memory",
        )];
        rows.extend(self.trials.iter().map(ProgramTrial::row));
        let mut text =
            format!("{}\nprograms: gains in percent, by `hugepilot trial`\n\n{}", self.machine, table(&rows));
        let refused = self.trials.iter().filter_map(|trial| Some((&trial.program, trial.refused.as_ref()?)));
        refused.for_each(|(program, why)| text += &format!("{program}: {why}\n"));
        self.trials.iter().filter_map(ProgramTrial::over_own_pages).for_each(|line| text += &line);
        text += "\nprograms\n";
        self.trials.iter().for_each(|trial| text += &format!("  {}: {}\n", trial.program, trial.what));
        text += "\nfigures\n";
        self.figures().iter().for_each(|figure| text += &figure.line(58, 30));
        text
    }

    /// A row for each program, the largest gain first, in Markdown.
    pub(crate) fn summary(&self) -> String {
        let mut trials: Vec<&ProgramTrial> = self.trials.iter().collect();
        let best = |trial: &ProgramTrial| trial.change().map_or(f64::NEG_INFINITY, |change| change.estimate);
        trials.sort_by(|one, other| best(other).total_cmp(&best(one)));
        let rows: String = trials.into_iter().map(ProgramTrial::summary).collect();
        format!("| program | forecast, % | gained, % | memory |\n|---|---|---|---|\n{rows}")
    }

    fn figures(&self) -> Vec<JudgedFigure> {
        let each = self.trials.iter().flat_map(|trial| {
            let width = trial.forecast().map(|gain| (100.0 + gain.high) / (100.0 + gain.low));
            let narrow = JudgedFigure::of_fact(
                format!("{}: the forecast's range <= a factor {WIDEST}", trial.program),
                width.map(|width| format!("{width:.2}")),
                width.map(|width| width <= WIDEST),
            );
            [trial.forecast_figure(), narrow]
        });
        each.collect()
    }
}

impl ProgramTrial {
    fn output(&self) -> Option<TrialOutput> {
        serde_json::from_value(self.trial.clone()?).ok()
    }

    /// What the trial measured.
    pub(super) fn change(&self) -> Option<SpeedChange> {
        self.output()?.change
    }

    /// What it did more than on its own base pages, which were measured before the first switch.
    fn over_own_pages(&self) -> Option<String> {
        let output = self.output()?;
        output.huge_pages_over_own?;
        let [huge, split] = [output.huge_pages_over_own, output.split_pages_over_own].map(told);
        Some(format!(
            "{}, in percent of its own base pages before: {} on huge pages, {} on base pages that had been huge\n",
            self.program, huge, split
        ))
    }

    /// By today's model from what was observed then; what was forecast then, where that was not kept.
    pub(super) fn forecast(&self) -> Option<GainPercent> {
        match self.output() {
            Some(TrialOutput { expected_from: Some(basis), .. }) => basis.gain(),
            Some(output) => output.expected_gain_percent,
            None => self.refused.as_ref().filter(|why| why.contains("nothing to try")).map(|_| NOTHING),
        }
    }

    /// Whether the gain lies in the forecast's range: the trial's interval meets the range, and is not wider than would tell.
    fn forecast_figure(&self) -> JudgedFigure {
        let text = format!("{}: the gain lies in the forecast", self.program);
        let Some((forecast, change)) = self.forecast().zip(self.change()) else {
            return JudgedFigure::of_fact(text, None, None);
        };
        let half = (change.high - change.low) / 2.0;
        let holds = 100.0 * change.low <= forecast.high && 100.0 * change.high >= forecast.low;
        let verdict =
            if half > RESOLVED { FigureVerdict::NotResolvable(half) } else { FigureVerdict::of_fact(Some(holds)) };
        JudgedFigure { text, numbers: told(Some(change)), verdict }
    }

    fn summary(&self) -> String {
        let (name, _) = self.what.split_once(", ").unwrap_or((&self.what, ""));
        let forecast = self.forecast().map_or("unknown".to_owned(), |gain| match gain.high > 0.0 {
            true => format!("{:.1} ({:.1} to {:.1})", gain.likely, gain.low, gain.high),
            false => "0".to_owned(),
        });
        let (gained, memory) = match self.output() {
            Some(output) => (told(output.change), grown(output.growth)),
            None => ("not tried: nothing would be promoted".to_owned(), "-".to_owned()),
        };
        format!("| {name} | {forecast} | {gained} | {memory} |\n")
    }

    fn row(&self) -> Vec<String> {
        let words = |gain: GainPercent| format!("{:.1} ({:.1} to {:.1})", gain.likely, gain.low, gain.high);
        let forecast = self.forecast().map_or("unknown".to_owned(), words);
        let Some(output) = self.output() else {
            return [&self.program, &forecast, "-", "-", "-", "-", "-", "-", "-", "-"].map(str::to_owned).to_vec();
        };
        vec![
            self.program.clone(),
            forecast,
            output.expected_gain_percent.map_or("-".to_owned(), words),
            told(output.change),
            told(output.by_clock),
            output.pairs.to_string(),
            Nanos((output.seconds * 1e9) as u64).to_string(),
            output.switched_bytes.to_string(),
            output.longest_stall_ns.map_or("-".to_owned(), |stall| stall.to_string()),
            grown(output.growth),
        ]
    }
}

/// Memory growth in percent.
fn grown(growth: Option<f64>) -> String {
    growth.map_or("-".to_owned(), |growth| format!("{:+.2} %", 100.0 * growth))
}

/// A change in percent, with its interval.
fn told(change: Option<SpeedChange>) -> String {
    let percent = |share: f64| 100.0 * share;
    change.map_or("-".to_owned(), |SpeedChange { estimate, low, high }| {
        format!("{:+.1} [{:+.1}, {:+.1}]", percent(estimate), percent(low), percent(high))
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    use crate::kept::{ResultKind, parse, read_text};
    use crate::outputs::json_lines;

    pub(in crate::programs) fn trial(program: &str, forecast: [f64; 3], change: Option<[f64; 3]>) -> ProgramTrial {
        let [low, likely, high] = forecast;
        let change =
            change.map(|[low, estimate, high]| serde_json::json!({ "estimate": estimate, "low": low, "high": high }));
        ProgramTrial {
            program: program.to_owned(),
            what: "A program".to_owned(),
            trial: Some(serde_json::json!({
                "expected_gain_percent": { "low": low, "likely": likely, "high": high },
                "change": change,
                "growth": 0.001,
                "pairs": 7,
                "seconds": 61.0,
                "switched_bytes": 1u64 << 30,
            })),
            refused: None,
        }
    }

    /// A change of the model shows here before anybody measures again.
    #[test]
    fn forecasts_hold_for_the_trials_that_the_readme_shows() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let tables = fs::read_to_string(root.join("docs/results/tables.toml")).expect("the tables");
        let tables: toml::Table = toml::from_str(&tables).expect("TOML");
        let runs = tables["programs"]["runs"].as_array().expect("runs");
        assert!(runs.len() > 9);
        for run in runs {
            let file = root.join("bench/runs").join(format!("{}.json.zst", run.as_str().expect("a path")));
            let record: ProgramsRecord =
                parse(&read_text(&file).expect("kept"), &file, VERSION).expect("of this version");
            for figure in record.figures() {
                assert_ne!(figure.verdict, FigureVerdict::NotMet, "{}: {}", figure.text, figure.numbers);
            }
        }
    }

    #[test]
    fn a_forecast_holds_if_what_is_known_of_the_gain_meets_it() {
        let verdict = |change| trial("redis", [10.0, 15.0, 20.0], change).forecast_figure().verdict;
        assert_eq!(verdict(Some([0.12, 0.15, 0.18])), FigureVerdict::Met);
        assert_eq!(verdict(Some([0.18, 0.22, 0.26])), FigureVerdict::Met);
        assert_eq!(verdict(Some([0.21, 0.22, 0.23])), FigureVerdict::NotMet);
        assert_eq!(verdict(Some([0.01, 0.02, 0.03])), FigureVerdict::NotMet);
        assert!(matches!(verdict(Some([-0.1, 0.15, 0.4])), FigureVerdict::NotResolvable(half) if half > 0.2));
        assert_eq!(verdict(None), FigureVerdict::NotMeasured);
    }

    #[test]
    fn a_file_is_read_as_it_was_written_and_told() {
        let mut record = ProgramsRecord::new(crate::machine::tests::machine());
        record.trials.push(trial("redis", [10.0, 15.0, 20.0], Some([0.12, 0.15, 0.18])));
        let refused = Some("nothing to try".to_owned());
        record.trials.push(ProgramTrial { trial: None, refused, ..trial("nginx", [0.0; 3], None) });
        let text = json_lines(&record, "program").unwrap();
        assert_eq!(ResultKind::of(&text), Some(ResultKind::Programs));
        assert_eq!(parse::<ProgramsRecord>(&text, "file".as_ref(), VERSION).unwrap(), record);
        let told = record.text();
        assert!(told.contains("15.0 (10.0 to 20.0)") && told.contains("+15.0 [+12.0, +18.0]"), "{told}");
        assert!(
            !told.contains("of its own base pages")
                && told.contains("nginx: nothing to try")
                && told.contains("redis: the gain lies in the forecast"),
            "{told}"
        );
        let mut later = trial("redis", [10.0, 15.0, 20.0], Some([0.12, 0.15, 0.18]));
        let mut output = later.trial.take().unwrap();
        for (name, estimate) in [("huge_pages_over_own", 0.5), ("split_pages_over_own", 0.25)] {
            output[name] = serde_json::json!({ "estimate": estimate, "low": 0.125, "high": 1.0 });
        }
        let told = ProgramTrial { trial: Some(output), ..later }.over_own_pages().unwrap();
        assert!(
            told.contains("+50.0 [+12.5, +100.0] on huge pages, +25.0 [+12.5, +100.0] on base pages that"),
            "{told}"
        );
    }
}
