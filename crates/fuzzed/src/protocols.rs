//! What others send over a connection, or into a client's list.
//!
//! Owns: the control socket with what its replies are shown as, requests for metrics, and libhps. Never touches: a connection.

use ::hps::wire::{Head, Notice, Page, WalkedRun};
use daemon::control::protocol::{Reply, Request};
use daemon::metrics::open_metrics;
use daemon::metrics_server::{Response, answer_to};
use hugepilot::report::{json, text};
use pilot::engine::shared_state::State;

/// A list may have a quarter of a billion pages, of which so many are compared.
const COMPARED: usize = 1 << 12;

/// The control socket's lines: any bytes are understood or refused, and what is understood is written as it was read.
pub fn control(bytes: &[u8]) {
    if let Ok(request) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.line()).expect("it can be read again"), request);
    }
    if let Ok(reply) = Reply::parse(bytes) {
        if let Reply::State(state) = &reply {
            show(state);
        }
        // Fractions may differ in their last digit, so only the form is compared.
        Reply::parse(&reply.line()).expect("it can be read again");
    }
}

fn show(state: &State) {
    assert!(text::status(state).ends_with('\n'));
    assert!(json::status(state).starts_with('{'));
    assert!(open_metrics(state.clone()).ends_with("# EOF\n"));
}

/// Requests for metrics, as anyone on the machine may send them, whole and cut after as many bytes as the first byte says.
pub fn http_request(bytes: &[u8]) {
    let Some((&cut, request)) = bytes.split_first() else { return };
    let whole = answer_to(request, 0);
    if whole == Some(Response::Metrics) {
        assert!(request.windows(8).any(|bytes| bytes == b"/metrics"));
    }
    let cut = request.len().min(cut.into());
    if answer_to(&request[..cut], 0).is_none() {
        assert_eq!(answer_to(request, cut), whole);
    }
}

/// What clients of libhps and the daemon say to each other, and the list of pages: any bytes are understood or refused.
pub fn hps(bytes: &[u8]) {
    if let Ok(notice) = Notice::parse(bytes) {
        let line = notice.line();
        assert_eq!(Notice::parse(&line[..line.len() - 1]).expect("it can be read again"), notice);
    }
    if let Some(Ok(head)) = bytes.first_chunk().map(Head::parse) {
        assert_eq!(Head::parse(&head.bytes()), Ok(head));
    }
    let runs: Vec<WalkedRun> = bytes.chunks_exact(WalkedRun::LEN).map(bytemuck::pod_read_unaligned).collect();
    if let Ok(pages) = WalkedRun::pages(&runs) {
        pages_come_back(&pages.take(COMPARED).collect::<Vec<Page>>());
    }
}

fn pages_come_back(pages: &[Page]) {
    assert!(pages.is_sorted_by(|one, next| one.address < next.address));
    let runs: Vec<WalkedRun> = WalkedRun::of(pages.iter().copied()).collect();
    assert!(WalkedRun::pages(&runs).expect("they can be read again").eq(pages.iter().copied()));
}
