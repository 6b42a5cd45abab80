//! A metric of a Prometheus server, or of an exporter's own page.
//!
//! Owns: requests for it, and reading the answers. Never touches: anything else there.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::meter::{Meter, MeterError};

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(10);
/// A page of metrics is no longer.
const MOST_BYTES: u64 = 32 << 20;

/// Reads a metric: the sum of all its series.
#[derive(Clone, Debug)]
pub struct ExporterMeter {
    /// A Prometheus server, such as `http://localhost:9090`, or, with a path, the page of an exporter, such as `http://localhost:9187/metrics`.
    pub url: String,
    /// For a server an expression of PromQL; for a page a metric's name, with its labels or without.
    pub query: String,
}

/// A Prometheus server.
#[derive(Clone, Debug)]
pub struct PrometheusServer {
    /// Such as `http://localhost:9090`.
    pub url: String,
}

/// One series of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredSeries {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its number; NaN where Prometheus has none.
    pub value: f64,
}

#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    value: (f64, String),
}

impl PrometheusServer {
    /// What an expression of PromQL is now, each series with its labels. Errors: no answer, or none that is a vector.
    pub fn query(&self, expression: &str) -> Result<Vec<MeasuredSeries>, MeterError> {
        let query = format!("{}/api/v1/query", self.url.trim_end_matches('/'));
        let answer = get(&self.url, ureq::get(query).query("query", expression))?;
        series(&answer).ok_or_else(|| MeterError::NoMetric { url: self.url.clone(), query: expression.to_owned() })
    }
}

impl Meter for ExporterMeter {
    fn read(&mut self) -> Result<f64, MeterError> {
        let no_metric = || MeterError::NoMetric { url: self.url.clone(), query: self.query.clone() };
        if self.is_page() {
            of_page(&get(&self.url, ureq::get(&self.url))?, &self.query).ok_or_else(no_metric)
        } else {
            let found = PrometheusServer { url: self.url.clone() }.query(&self.query)?;
            sum(found.into_iter().map(|series| Some(series.value))).ok_or_else(no_metric)
        }
    }
}

impl ExporterMeter {
    fn is_page(&self) -> bool {
        let after_scheme = self.url.split_once("://").map_or(&*self.url, |(_, rest)| rest);
        after_scheme.trim_end_matches('/').contains('/')
    }
}

fn get(url: &str, request: ureq::RequestBuilder<ureq::typestate::WithoutBody>) -> Result<String, MeterError> {
    if url.starts_with("https:") {
        return Err(MeterError::Https { url: url.to_owned() });
    }
    let failed = |error: ureq::Error| MeterError::Http { url: url.to_owned(), cause: error.to_string() };
    let request = request.config().timeout_global(Some(LONGEST)).http_status_as_error(false).build();
    let mut response = request.call().map_err(failed)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(MOST_BYTES).read_to_string();
    if status.is_success() {
        return body.map_err(failed);
    }
    let said = body.ok().and_then(|body| serde_json::from_str::<Refusal>(&body).ok());
    let said = said.map(|Refusal { error }| format!(": {}", error.escape_debug())).unwrap_or_default();
    Err(MeterError::Http { url: url.to_owned(), cause: format!("HTTP status {}{said}", status.as_u16()) })
}

/// What Prometheus says of an expression that it refuses.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The series of a server's answer; None if it is none.
fn series(answer: &str) -> Option<Vec<MeasuredSeries>> {
    let Answer { data } = serde_json::from_str(answer).ok()?;
    let measured =
        |Series { metric, value: (_, value) }| Some(MeasuredSeries { labels: metric, value: value.parse().ok()? });
    data.result.into_iter().map(measured).collect()
}

/// The sum of a metric's lines; None if there are none.
fn of_page(page: &str, query: &str) -> Option<f64> {
    let numbers = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(query)?;
        let rest = if query.ends_with('}') || !rest.starts_with('{') { rest } else { &rest[rest.rfind('}')? + 1..] };
        rest.starts_with([' ', '\t']).then(|| rest.split_whitespace().next()?.parse().ok())
    });
    sum(numbers)
}

fn sum(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    let sum: f64 = numbers.iter().sum();
    (!numbers.is_empty() && sum.is_finite() && sum >= 0.0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# TYPE requests_total counter
requests_total{method=\"get\",path=\"/a b}\"} 10 1700000000
requests_total{method=\"put\"} 2.5e1
requests_total_more 99
up 1
bad{a=\"b\"} NaN
";

    #[test]
    fn series_of_a_page_are_added_up() {
        assert_eq!(of_page(PAGE, "requests_total"), Some(35.0));
        assert_eq!(of_page(PAGE, "requests_total{method=\"put\"}"), Some(25.0));
        assert_eq!(of_page(PAGE, "up"), Some(1.0));
        for wrong in ["request", "bad", "down", ""] {
            assert_eq!(of_page(PAGE, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_server_with_tls_is_refused_with_what_to_do() {
        let refused = PrometheusServer { url: "https://prometheus:9090".to_owned() }.query("up").unwrap_err();
        assert!(
            matches!(refused, MeterError::Https { .. }) && refused.to_string().contains("port-forward"),
            "{refused}"
        );
    }

    #[test]
    fn a_servers_answer_is_added_up() {
        let answer = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"10"]},{"metric":{},"value":[1.5,"2.5"]}]}}"#;
        let found = series(answer).unwrap();
        assert_eq!(sum(found.iter().map(|series| Some(series.value))), Some(12.5));
        assert_eq!(found[0].labels, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
        assert_eq!(series(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#), Some(Vec::new()));
        assert_eq!(sum(std::iter::empty()), None);
        assert_eq!(series("<html>"), None);
    }

    #[test]
    fn an_address_with_a_path_is_a_page() {
        let is_page = |url: &str| ExporterMeter { url: url.to_owned(), query: String::new() }.is_page();
        assert!(
            is_page("http://localhost:9187/metrics")
                && !is_page("http://localhost:9090")
                && !is_page("http://localhost:9090/")
        );
    }
}
