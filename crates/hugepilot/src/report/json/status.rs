//! A running pilot, and what it did on request.

use pilot::engine::shared_state::State;

use super::{ReportKind, document, state_document};

/// The complete state of a running pilot.
pub fn status(state: &State) -> String {
    state_document(ReportKind::Status, state)
}

/// What the daemon gave back; it also paused the process. Fewer fields than when the command itself gives back, because the daemon reports no more.
pub fn given_back_by_daemon(pid: u32, regions: u64) -> String {
    document(ReportKind::GiveBackByDaemon, &object! { pid, applied: regions, paused: true })
}

/// What is left alone from now on: a process, or (null) everything.
pub fn paused(pid: Option<u32>) -> String {
    document(ReportKind::Pause, &object! { pid, paused: true })
}

/// What is piloted again, unless everything is still paused.
pub fn resumed(pid: Option<u32>, all_paused: bool) -> String {
    document(ReportKind::Pause, &object! { pid, paused: all_paused })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::json::tests::pretty;
    use crate::report::samples::pilot_state;

    #[test]
    fn a_status_has_the_fields_of_the_state_and_no_others() {
        let document = status(&pilot_state());
        insta::assert_snapshot!(pretty(&document));
        assert_eq!(serde_json::from_str::<State>(&document).unwrap(), pilot_state());
    }

    #[test]
    fn giving_back_through_the_daemon_tells_of_the_pause() {
        assert_eq!(paused(None), "{\"version\":1,\"report\":\"pause\",\"pid\":null,\"paused\":true}\n");
        assert_eq!(resumed(Some(7), false), "{\"version\":1,\"report\":\"pause\",\"pid\":7,\"paused\":false}\n");
        assert_eq!(
            given_back_by_daemon(7, 512),
            "{\"version\":1,\"report\":\"give-back-by-daemon\",\"pid\":7,\"applied\":512,\"paused\":true}\n"
        );
    }
}
