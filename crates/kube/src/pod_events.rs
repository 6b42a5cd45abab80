//! Events on pods: what is wrong with their annotations, and that one is not promoted any more.
//!
//! Owns: their wording, and how often a pod is told the same. Never touches: the cluster; the agent publishes them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use crate::annotations::WrongAnnotation;
use crate::node::PodNotice;
use crate::pod::PodFacts;

/// A pod is told something new after this time at the earliest, however often its annotations change.
const AGAIN: Duration = Duration::from_secs(60);
/// Events at once: those of a whole namespace that is wrong must not burden the API server.
const MOST_AT_ONCE: usize = 10;
/// Bytes of an event's note.
const LONGEST_NOTE: usize = 1_000;

/// What pods have been told.
#[derive(Debug, Default)]
pub struct PodEvents(BTreeMap<String, (PodNotice, Instant)>);

impl PodEvents {
    /// What is to be told now.
    pub fn news(
        &mut self,
        notices: &BTreeMap<String, (PodFacts, PodNotice)>,
        now: Instant,
    ) -> Vec<(PodFacts, PodNotice)> {
        self.0.retain(|uid, (_, at)| notices.contains_key(uid) || now < *at + AGAIN);
        let is_news = |uid: &str, notice: &PodNotice| {
            self.0.get(uid).is_none_or(|(told, at)| told != notice && now >= *at + AGAIN)
        };
        let news = notices.iter().filter(|(uid, (_, notice))| is_news(uid, notice)).take(MOST_AT_ONCE);
        let news: Vec<(PodFacts, PodNotice)> = news.map(|(_, told)| told.clone()).collect();
        self.0.extend(news.iter().map(|(pod, notice)| (pod.uid.clone(), (notice.clone(), now))));
        news
    }
}

/// The event of a notice, and what it is about.
pub fn event(pod: &PodFacts, notice: &PodNotice) -> (Event, ObjectReference) {
    let (reason, note) = match notice {
        PodNotice::WrongAnnotations(wrong) => ("WrongAnnotation", wrong_annotations(wrong)),
        PodNotice::OutOfMemory(container) => (
            "OutOfMemory",
            format!(
                "container {container} was killed for lack of memory: hugepilot only observes this pod from now on. Raise the container's \
                 memory limit, and replace the pod to have it promoted again"
            ),
        ),
    };
    let event = Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Observing".to_owned(),
        secondary: None,
    };
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name.clone()),
        namespace: Some(pod.namespace.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    };
    (event, about)
}

fn wrong_annotations(wrong: &[WrongAnnotation]) -> String {
    let all: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let note = format!("hugepilot only observes this pod at most, because of wrong annotations. {}", all.join("; "));
    let end = (0..=LONGEST_NOTE.min(note.len())).rev().find(|&end| note.is_char_boundary(end));
    note[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::{Annotations, PREFIX, PodSettings, settings};
    use crate::pod::tests::{facts, pod_json};

    fn notices(pods: &[(&str, &str)]) -> BTreeMap<String, (PodFacts, PodNotice)> {
        let of = |&(uid, container): &(&str, &str)| {
            let mut pod = facts(pod_json());
            pod.uid = uid.to_owned();
            (uid.to_owned(), (pod, PodNotice::OutOfMemory(container.to_owned())))
        };
        pods.iter().map(of).collect()
    }

    #[test]
    fn a_pod_is_told_once_and_something_else_after_a_while() {
        let (mut told, now) = (PodEvents::default(), Instant::now());
        let mut news =
            |pods: &[(&str, &str)], seconds| told.news(&notices(pods), now + Duration::from_secs(seconds)).len();
        assert_eq!(news(&[("a", "x"), ("b", "x")], 0), 2);
        assert_eq!(news(&[("a", "x"), ("b", "x"), ("c", "x")], 1), 1);
        assert_eq!((news(&[("a", "y")], 59), news(&[("a", "y")], 60)), (0, 1));
        assert_eq!((news(&[], 61), news(&[("a", "y")], 62), news(&[("a", "y")], 200)), (0, 0, 0), "it comes and goes");
        assert_eq!((news(&[], 201), news(&[("a", "y")], 202)), (0, 1), "somebody made the same mistake again");
    }

    #[test]
    fn few_events_are_sent_at_once_and_the_others_later() {
        let names: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        let all = notices(&names.iter().map(|name| (name.as_str(), "x")).collect::<Vec<_>>());
        let (mut told, now) = (PodEvents::default(), Instant::now());
        assert_eq!([(); 4].map(|()| told.news(&all, now).len()), [10, 10, 5, 0]);
    }

    #[test]
    fn an_event_is_about_its_pod_and_no_longer_than_allowed() {
        let pod = facts(pod_json());
        let many: Annotations = (0..200).map(|number| (format!("{PREFIX}ünknown-{number}"), String::new())).collect();
        let (_, wrong) = settings(&PodSettings::default(), &Annotations::new(), &many);
        let (event, about) = event(&pod, &PodNotice::WrongAnnotations(wrong));
        let note = event.note.expect("a note");
        assert!(
            note.contains("hugepilot.io/ünknown-0: there is no such annotation") && note.len() <= LONGEST_NOTE,
            "{note}"
        );
        assert_eq!((about.name, about.uid), (Some(pod.name), Some(pod.uid)));
    }
}
