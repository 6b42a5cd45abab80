//! Responses as they are written to a connection.
//!
//! Owns: the metrics of the last second, which all who ask within it get. Never touches: sockets.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilot::engine::shared_state::SharedState;

use crate::metrics;
use crate::metrics_server::request::Response;

/// How long metrics are served before they are rendered anew: that takes the state's lock, which the pilot waits for, and much CPU time.
/// No collector asks more often.
const FRESH: Duration = Duration::from_secs(1);

/// Writes responses out.
pub(super) struct Answers {
    shared_state: SharedState,
    metrics: Option<(Instant, Arc<[u8]>)>,
}

impl Answers {
    pub(super) fn new(shared_state: SharedState) -> Self {
        Self { shared_state, metrics: None }
    }

    /// The bytes of a response: head and body.
    pub(super) fn written_out(&mut self, response: Response) -> Arc<[u8]> {
        match response {
            Response::Metrics => self.metrics_at(Instant::now()),
            other => bytes(other, "text/plain; charset=utf-8", other.error_body()),
        }
    }

    fn metrics_at(&mut self, now: Instant) -> Arc<[u8]> {
        if let Some((rendered_at, bytes)) = &self.metrics
            && now.saturating_duration_since(*rendered_at) < FRESH
        {
            return Arc::clone(bytes);
        }
        let body = metrics::open_metrics(self.shared_state.state());
        let bytes = bytes(Response::Metrics, metrics::CONTENT_TYPE, &body);
        self.metrics = Some((now, Arc::clone(&bytes)));
        bytes
    }
}

fn bytes(response: Response, content_type: &str, body: &str) -> Arc<[u8]> {
    let mut bytes = response.head(content_type, body.len()).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    bytes.into()
}

#[cfg(test)]
mod tests {
    use pilot::engine::shared_state::{Counts, State};

    use super::*;

    #[test]
    fn metrics_are_rendered_once_a_second_for_all() {
        let shared_state = SharedState::default();
        let (mut answers, now) = (Answers::new(shared_state.clone()), Instant::now());
        let first = answers.metrics_at(now);
        shared_state.show(State { counts: Counts { scans: 7, ..Counts::default() }, ..State::default() });
        assert!(Arc::ptr_eq(&first, &answers.metrics_at(now + FRESH / 2)));
        let next = String::from_utf8(answers.metrics_at(now + FRESH).to_vec()).unwrap();
        assert!(next.contains("\nhugepilot_scans_total 7.0\n"), "{next}");
    }
}
