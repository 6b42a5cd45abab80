//! What is known of the node's pods and their namespaces, and the set of targets that follows.
//!
//! Owns: keeping both through lost watches. Never touches: the cluster, or the daemon.

use std::collections::{BTreeMap, BTreeSet};

use daemon::control::target_set::{GroupTarget, MOST_SET, TargetSet};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::Event;

use crate::annotations::{Annotations, PodSettings, WrongAnnotation, settings};
use crate::pod::PodFacts;

/// The owner of the sets.
const OWNER: &str = "kubernetes";

/// Objects by key, as a watch tells them. While they are listed anew, the former ones stay.
#[derive(Debug)]
struct Mirror<T> {
    known: BTreeMap<String, T>,
    listing: BTreeMap<String, T>,
    is_complete: bool,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), listing: BTreeMap::new(), is_complete: false }
    }
}

impl<T> Mirror<T> {
    fn note(&mut self, event: Event<(String, T)>) {
        match event {
            Event::Apply((key, object)) => drop(self.known.insert(key, object)),
            Event::Delete((key, _)) => drop(self.known.remove(&key)),
            Event::Init => self.listing.clear(),
            Event::InitApply((key, object)) => drop(self.listing.insert(key, object)),
            Event::InitDone => {
                self.known = std::mem::take(&mut self.listing);
                self.is_complete = true;
            }
        }
    }
}

/// The node's pods, and all namespaces.
#[derive(Debug, Default)]
pub struct NodePods {
    /// By uid; None for pods that have no place on the node yet.
    pods: Mirror<Option<PodFacts>>,
    namespaces: Mirror<Annotations>,
}

/// What is to be told on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodNotice {
    /// Annotations that are wrong.
    WrongAnnotations(Vec<WrongAnnotation>),
    /// It is not promoted any more, because this container of it was killed for lack of memory.
    OutOfMemory(String),
}

/// What follows from all that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// For the daemon.
    pub set: TargetSet,
    /// For the pods, by uid.
    pub notices: BTreeMap<String, (PodFacts, PodNotice)>,
    /// Pods on the node.
    pub pods: usize,
}

impl NodePods {
    /// Notes what a watch says of pods.
    pub fn note_pod(&mut self, event: Event<Pod>) {
        let before = |uid: &str| self.pods.known.get(uid)?.as_ref();
        let kept = |pod: &Pod| {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let facts = PodFacts::of(pod).map(|facts| facts.after(before(&uid)));
            (uid, facts)
        };
        let event = each(event, |pod| kept(&pod));
        self.pods.note(event);
    }

    /// Notes what a watch says of namespaces: the name of one, and our annotations of it.
    pub fn note_namespace(&mut self, event: Event<(String, Annotations)>) {
        self.namespaces.note(event);
    }

    /// What follows; None until everything was listed once: what is not known yet may say `off`.
    pub fn plan(&self, default: &PodSettings, root: &str) -> Option<NodePlan> {
        if !self.pods.is_complete || !self.namespaces.is_complete {
            return None;
        }
        let (mut targets, mut notices, nothing) = (Vec::new(), BTreeMap::new(), Annotations::new());
        let pods: Vec<&PodFacts> = self.pods.known.values().flatten().collect();
        for &pod in &pods {
            let namespace = self.namespaces.known.get(&pod.namespace).unwrap_or(&nothing);
            let (settings, wrong) = settings(default, namespace, &pod.annotations);
            targets.extend(pod.targets(&settings, root));
            let is_reduced = pod.mode(&settings) != settings.mode;
            let killed = pod.out_of_memory.clone().filter(|_| is_reduced).map(PodNotice::OutOfMemory);
            let wrong = (!wrong.is_empty()).then_some(PodNotice::WrongAnnotations(wrong));
            if let Some(notice) = wrong.or(killed) {
                notices.insert(pod.uid.clone(), (pod.clone(), notice));
            }
        }
        Some(NodePlan { set: acceptable(OWNER, targets), notices, pods: pods.len() })
    }
}

/// The owner's set without what the daemon would refuse: one target that is wrong must not cost all others theirs.
pub fn acceptable(owner: &str, targets: Vec<GroupTarget>) -> TargetSet {
    let of = |targets: Vec<GroupTarget>| TargetSet { owner: owner.to_owned(), targets };
    let mut named = BTreeSet::new();
    let mut is_acceptable = |target: &GroupTarget| {
        let alone = of(vec![target.clone()]).assignments();
        let is_new = target.cgroups.iter().all(|group| named.insert(group.clone()));
        if let Err(error) = &alone {
            tracing::warn!("a container is left out: {error}");
        }
        alone.is_ok() && is_new
    };
    let mut targets: Vec<GroupTarget> = targets.into_iter().filter(|target| is_acceptable(target)).collect();
    if targets.len() > MOST_SET {
        tracing::warn!("of {} containers only {MOST_SET} are piloted", targets.len());
        targets.truncate(MOST_SET);
    }
    of(targets)
}

/// The same event with what `of` makes of its object.
fn each<T, U>(event: Event<T>, of: impl FnOnce(T) -> U) -> Event<U> {
    match event {
        Event::Apply(object) => Event::Apply(of(object)),
        Event::Delete(object) => Event::Delete(of(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(of(object)),
        Event::InitDone => Event::InitDone,
    }
}

#[cfg(test)]
mod tests {
    use daemon::control::target_set::GroupMode;
    use serde_json::json;

    use super::*;
    use crate::annotations::PREFIX;
    use crate::pod::tests::{pod, pod_json};

    fn annotated(name: &str, value: &str) -> Annotations {
        [(format!("{PREFIX}{name}"), value.to_owned())].into()
    }

    fn pod_of(uid: &str, annotations: serde_json::Value) -> Pod {
        let mut value = pod_json();
        value["metadata"]["uid"] = uid.into();
        value["metadata"]["name"] = format!("pod-{uid}").into();
        value["metadata"]["annotations"] = annotations;
        pod(value)
    }

    /// A node with these pods, and the pods' namespace.
    fn node(pods: Vec<Pod>, namespace: Annotations) -> NodePods {
        let mut node = NodePods::default();
        node.note_namespace(Event::Init);
        node.note_namespace(Event::InitApply(("shop".to_owned(), namespace)));
        node.note_namespace(Event::InitDone);
        list(&mut node, pods);
        node
    }

    fn list(node: &mut NodePods, pods: Vec<Pod>) {
        node.note_pod(Event::Init);
        pods.into_iter().for_each(|pod| node.note_pod(Event::InitApply(pod)));
        node.note_pod(Event::InitDone);
    }

    fn modes(node: &NodePods) -> Vec<(String, GroupMode)> {
        let plan = node.plan(&PodSettings::default(), "/").expect("all was listed");
        plan.set.targets.iter().map(|target| (target.labels["pod"].clone(), target.mode)).collect()
    }

    fn expected(modes: &[(&str, GroupMode)]) -> Vec<(String, GroupMode)> {
        modes.iter().map(|(uid, mode)| (format!("pod-{uid}"), *mode)).collect()
    }

    #[test]
    fn nothing_is_said_before_pods_and_namespaces_are_known() {
        let mut node = NodePods::default();
        assert_eq!(node.plan(&PodSettings::default(), "/"), None);
        list(&mut node, vec![pod_of("a", json!({}))]);
        assert_eq!(node.plan(&PodSettings::default(), "/"), None, "the namespace may say off");
        node.note_namespace(Event::InitDone);
        assert_eq!(modes(&node), expected(&[("a", GroupMode::Observe)]));
    }

    #[test]
    fn pods_come_and_go_and_stay_while_they_are_listed_anew() {
        let promote = || json!({ "hugepilot.io/mode": "promote" });
        let mut node = node(vec![pod_of("a", promote()), pod_of("b", json!({}))], Annotations::new());
        let both = expected(&[("a", GroupMode::Promote), ("b", GroupMode::Observe)]);
        assert_eq!(modes(&node), both);
        node.note_pod(Event::Init);
        node.note_pod(Event::InitApply(pod_of("c", json!({}))));
        assert_eq!(modes(&node), both, "the API server may end while it lists");
        node.note_pod(Event::Init);
        node.note_pod(Event::InitApply(pod_of("d", json!({}))));
        node.note_pod(Event::InitDone);
        assert_eq!(modes(&node), expected(&[("d", GroupMode::Observe)]));
        node.note_pod(Event::Apply(pod_of("d", promote())));
        assert_eq!(modes(&node), expected(&[("d", GroupMode::Promote)]));
        node.note_pod(Event::Delete(pod_of("d", promote())));
        assert_eq!(modes(&node), []);
    }

    #[test]
    fn a_namespace_that_changes_its_mind_changes_its_pods() {
        let mut node = node(vec![pod_of("a", json!({}))], annotated("mode", "promote"));
        assert_eq!(modes(&node), expected(&[("a", GroupMode::Promote)]));
        node.note_namespace(Event::Apply(("shop".to_owned(), annotated("mode", "off"))));
        assert_eq!(modes(&node), expected(&[("a", GroupMode::Off)]));
    }

    #[test]
    fn what_is_wrong_and_who_was_killed_is_told() {
        let wrong = pod_of("a", json!({ "hugepilot.io/mode": "on" }));
        let mut killed = pod_of("b", json!({ "hugepilot.io/mode": "promote" }));
        let status = &mut killed.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0];
        status.last_state =
            serde_json::from_value(json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } })).unwrap();
        let mut node = node(vec![wrong, killed, pod_of("c", json!({}))], Annotations::new());
        let plan = node.plan(&PodSettings::default(), "/").unwrap();
        assert_eq!(plan.notices.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(matches!(&plan.notices["a"].1, PodNotice::WrongAnnotations(wrong) if wrong.len() == 1));
        assert_eq!(plan.notices["b"].1, PodNotice::OutOfMemory("app".to_owned()));
        let again = pod_of("b", json!({ "hugepilot.io/mode": "promote" }));
        list(&mut node, vec![again]);
        assert_eq!(modes(&node), expected(&[("b", GroupMode::Observe)]), "listed anew, it is still known");
    }

    #[test]
    fn a_set_is_what_the_daemon_takes() {
        let target = |group: &str| GroupTarget { cgroups: vec![group.to_owned()], ..GroupTarget::default() };
        let set = acceptable(OWNER, vec![target("/a"), target("b"), target("/a"), target("/c")]);
        assert_eq!(set.targets, [target("/a"), target("/c")]);
        let many = acceptable(OWNER, (0..=MOST_SET).map(|number| target(&format!("/{number}"))).collect());
        assert!(many.targets.len() == MOST_SET && many.assignments().is_ok());
    }
}
