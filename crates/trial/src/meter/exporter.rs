//! A metric of a Prometheus server, or of an exporter's own page.
//!
//! Owns: requests for it, and reading the answers. Never touches: anything else there.

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
    value: (f64, String),
}

impl Meter for ExporterMeter {
    fn read(&mut self) -> Result<f64, MeterError> {
        let no_metric = || MeterError::NoMetric { url: self.url.clone(), query: self.query.clone() };
        if self.is_page() {
            of_page(&self.get(ureq::get(&self.url))?, &self.query).ok_or_else(no_metric)
        } else {
            let query = format!("{}/api/v1/query", self.url.trim_end_matches('/'));
            of_server(&self.get(ureq::get(query).query("query", &self.query))?).ok_or_else(no_metric)
        }
    }
}

impl ExporterMeter {
    fn is_page(&self) -> bool {
        let after_scheme = self.url.split_once("://").map_or(&*self.url, |(_, rest)| rest);
        after_scheme.trim_end_matches('/').contains('/')
    }

    fn get(&self, request: ureq::RequestBuilder<ureq::typestate::WithoutBody>) -> Result<String, MeterError> {
        let failed = |error: ureq::Error| MeterError::Http { url: self.url.clone(), cause: error.to_string() };
        let mut response = request.config().timeout_global(Some(LONGEST)).build().call().map_err(failed)?;
        response.body_mut().with_config().limit(MOST_BYTES).read_to_string().map_err(failed)
    }
}

/// The sum of a server's answer; None if it has no number.
fn of_server(answer: &str) -> Option<f64> {
    let Answer { data } = serde_json::from_str(answer).ok()?;
    sum(data.result.into_iter().map(|series| series.value.1.parse().ok()))
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
    fn a_servers_answer_is_added_up() {
        let answer = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":"b"},"value":[1.5,"10"]},{"metric":{},"value":[1.5,"2.5"]}]}}"#;
        assert_eq!(of_server(answer), Some(12.5));
        assert_eq!(of_server(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#), None);
        assert_eq!(of_server("<html>"), None);
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
