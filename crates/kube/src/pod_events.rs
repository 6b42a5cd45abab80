//! Events on pods: what is wrong with their annotations, and that one is not promoted any more.
//!
//! Owns: their wording, and how often a pod is told the same. Never touches: the cluster; the agent publishes them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};

use crate::annotations::{WrongAnnotation, part_of};
use crate::node::PodNotice;
use crate::pod::PodFacts;

/// A pod is told something new after this time at the earliest, however often its annotations change.
const AGAIN: Duration = Duration::from_secs(60);
/// Events at once, where none were sent for a while.
const MOST_AT_ONCE: usize = 10;
/// From then on one each such time: thousands of agents share an API server.
const EACH: Duration = Duration::from_secs(30);
/// A mistake in a namespace reaches all its pods on all nodes at the same moment, and is told within this time.
const SPREAD: Duration = Duration::from_secs(600);
/// Bytes of an event's note.
const LONGEST_NOTE: usize = 1_000;

/// What pods have been told, and are to be told.
#[derive(Debug, Default)]
pub struct PodEvents {
    /// By uid, with when.
    told: BTreeMap<String, (PodNotice, Instant)>,
    /// By uid, with when that was first so.
    seen: BTreeMap<String, (PodNotice, Instant)>,
    rate: EventRate,
}

impl PodEvents {
    /// What is to be told now.
    pub fn news(
        &mut self,
        notices: &BTreeMap<String, (PodFacts, PodNotice)>,
        now: Instant,
    ) -> Vec<(PodFacts, PodNotice)> {
        self.told.retain(|uid, (_, at)| notices.contains_key(uid) || now < *at + AGAIN);
        self.seen.retain(|uid, (notice, _)| notices.get(uid).is_some_and(|(_, current)| current == notice));
        for (uid, (_, notice)) in notices {
            self.seen.entry(uid.clone()).or_insert_with(|| (notice.clone(), now));
        }
        let is_due = |uid: &str| self.seen.get(uid).is_some_and(|(notice, at)| now >= *at + delay(uid, notice));
        let is_news = |uid: &str, notice: &PodNotice| {
            self.told.get(uid).is_none_or(|(told, at)| told != notice && now >= *at + AGAIN)
        };
        let news = notices.iter().filter(|(uid, (_, notice))| is_due(uid) && is_news(uid, notice));
        let news: Vec<(PodFacts, PodNotice)> = news.take(self.rate.free(now)).map(|(_, told)| told.clone()).collect();
        self.rate.spent += news.len();
        self.told.extend(news.iter().map(|(pod, notice)| (pod.uid.clone(), (notice.clone(), now))));
        news
    }
}

/// How long a pod is not told yet.
fn delay(uid: &str, notice: &PodNotice) -> Duration {
    match notice {
        PodNotice::WrongAnnotations(wrong) if wrong.iter().all(WrongAnnotation::is_of_namespace) => {
            Duration::from_secs(part_of(SPREAD.as_secs(), uid))
        }
        PodNotice::WrongAnnotations(_) | PodNotice::OutOfMemory(_) => Duration::ZERO,
    }
}

/// Events that may still be sent.
#[derive(Debug, Default)]
struct EventRate {
    spent: usize,
    /// Since then, one less is spent for each [`EACH`].
    since: Option<Instant>,
}

impl EventRate {
    fn free(&mut self, now: Instant) -> usize {
        let since = *self.since.get_or_insert(now);
        let periods = u32::try_from(now.duration_since(since).as_secs() / EACH.as_secs()).unwrap_or(u32::MAX);
        self.spent = self.spent.saturating_sub(usize::try_from(periods).unwrap_or(usize::MAX));
        // What is unspent does not add up.
        self.since = Some(if self.spent == 0 { now } else { since + EACH * periods });
        MOST_AT_ONCE - self.spent
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
    fn few_events_are_sent_at_once_and_the_others_one_by_one() {
        let names: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        let all = notices(&names.iter().map(|name| (name.as_str(), "x")).collect::<Vec<_>>());
        let (mut told, now) = (PodEvents::default(), Instant::now());
        let mut news = |seconds| told.news(&all, now + Duration::from_secs(seconds)).len();
        assert_eq!([0, 10, 29, 30, 40, 60, 150].map(&mut news), [10, 0, 0, 1, 0, 1, 3]);
        let later: usize = (0..100).map(|number| news(160 + 10 * number)).sum();
        assert_eq!(later, 10, "each is told");
    }

    #[test]
    fn a_mistake_in_a_namespace_is_told_at_different_times_and_a_pods_own_at_once() {
        let wrong: Annotations = [(format!("{PREFIX}mode"), "on".to_owned())].into();
        let notices = |namespace: &Annotations, pod: &Annotations| {
            let (_, wrong) = settings(&PodSettings::default(), namespace, pod);
            let uids = [1, 2, 3, 4, 5].map(|number| format!("{number}47ac10b-58cc-4372-a567-0e02b2c3d479"));
            let all = notices(&uids.each_ref().map(|uid| (uid.as_str(), "")));
            let with =
                |(uid, (pod, _)): (String, (PodFacts, _))| (uid, (pod, PodNotice::WrongAnnotations(wrong.clone())));
            all.into_iter().map(with).collect::<BTreeMap<_, _>>()
        };
        let now = Instant::now();
        let counts = |notices: BTreeMap<_, _>| {
            let mut told = PodEvents::default();
            (0..=60).map(|number| told.news(&notices, now + Duration::from_secs(10 * number)).len()).collect::<Vec<_>>()
        };
        assert_eq!(counts(notices(&Annotations::new(), &wrong))[0], 5);
        let spread = counts(notices(&wrong, &Annotations::new()));
        assert!(spread.iter().sum::<usize>() == 5 && spread.iter().all(|&count| count <= 1), "{spread:?}");
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
