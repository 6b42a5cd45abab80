//! A pod: what the agent remembers of it, and the targets that follow.
//!
//! Owns: which of Kubernetes' fields are read. Never touches: the cluster; all of it is pure.

use std::collections::BTreeMap;

use daemon::control::target_set::{GroupMode, GroupTarget};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::annotations::{ARM_LABEL, Annotations, PodSettings, TrialArm, ours};
use crate::cgroup_names::{ContainerKey, ServiceClass, names};

/// What kubelet's own pods have as uid on the node, from a file there.
const STATIC_POD_UID: &str = "kubernetes.io/config.hash";
const OUT_OF_MEMORY: &str = "OOMKilled";

/// What is remembered of a pod: a hundredth of what the API server tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// The object's own uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Our annotations of it.
    pub annotations: Annotations,
    /// A container of it that the kernel killed for lack of memory.
    pub out_of_memory: Option<String>,
    /// The uid in its control group's name.
    group_uid: String,
    class: ServiceClass,
    workload: Workload,
    containers: Vec<Container>,
}

/// A running container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Container {
    name: String,
    key: ContainerKey,
}

/// What made the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Workload {
    kind: String,
    name: String,
}

impl PodFacts {
    /// None for a pod that has no place on the node yet.
    pub fn of(pod: &Pod) -> Option<Self> {
        let (metadata, status) = (&pod.metadata, pod.status.as_ref()?);
        let (uid, name) = (metadata.uid.clone()?, metadata.name.clone()?);
        let annotations = metadata.annotations.as_ref();
        let group_uid = annotations.and_then(|all| all.get(STATIC_POD_UID)).unwrap_or(&uid).clone();
        Some(Self {
            namespace: metadata.namespace.clone()?,
            annotations: ours(annotations),
            out_of_memory: out_of_memory(status),
            class: ServiceClass::parse(status.qos_class.as_deref()?)?,
            workload: workload(pod, &name),
            containers: statuses(status).filter_map(Container::running).collect(),
            group_uid: Some(group_uid)
                .filter(|uid| uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-'))?,
            uid,
            name,
        })
    }

    /// The same, with what was known of the pod before: who once lacked memory may lack it again.
    pub fn after(mut self, before: Option<&Self>) -> Self {
        self.out_of_memory = self.out_of_memory.or_else(|| before?.out_of_memory.clone());
        self
    }

    /// What may be done to it by these settings. In a trial its uid decides whether it is promoted or only observed.
    pub fn mode(&self, settings: &PodSettings) -> GroupMode {
        let mode = settings.mode_of(&self.uid);
        if self.out_of_memory.is_some() { mode.min(GroupMode::Observe) } else { mode }
    }

    /// A target for each container. `root`: kubelet's cgroupRoot.
    pub fn targets(&self, settings: &PodSettings, root: &str) -> impl Iterator<Item = GroupTarget> {
        let mode = self.mode(settings);
        self.containers.iter().map(move |container| {
            let labels = self.labels(&container.name, settings.arm_of(&self.uid));
            settings.target(names(root, self.class, &self.group_uid, &container.key), mode, labels)
        })
    }

    fn labels(&self, container: &str, arm: Option<TrialArm>) -> BTreeMap<String, String> {
        let labels = [
            ("namespace", self.namespace.as_str()),
            ("pod", &self.name),
            ("container", container),
            ("workload", &self.workload.name),
            ("workload_kind", &self.workload.kind),
        ];
        let arm = arm.map(|arm| (ARM_LABEL, arm.word()));
        labels.into_iter().chain(arm).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

impl Container {
    fn running(status: &ContainerStatus) -> Option<Self> {
        status.state.as_ref()?.running.as_ref()?;
        Some(Self { name: status.name.clone(), key: ContainerKey::parse(status.container_id.as_deref()?)? })
    }
}

/// Containers, and init containers that run on beside them.
fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.container_statuses.iter().chain(&status.init_container_statuses).flatten()
}

fn out_of_memory(status: &PodStatus) -> Option<String> {
    let states = |each: &ContainerStatus| [each.state.clone(), each.last_state.clone()];
    let was_killed = |each: &ContainerStatus| {
        let mut reasons = states(each).into_iter().filter_map(|state| state?.terminated?.reason);
        reasons.any(|reason| reason == OUT_OF_MEMORY)
    };
    statuses(status).find(|each| was_killed(each)).map(|each| each.name.clone())
}

/// The Deployment of a ReplicaSet and the CronJob of a Job are known by their names.
fn workload(pod: &Pod, pod_name: &str) -> Workload {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let Some(owner) = owners.find(|owner| owner.controller == Some(true)) else {
        return Workload { kind: "Pod".to_owned(), name: pod_name.to_owned() };
    };
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    let deployment = || owner.name.strip_suffix(hash?.as_str())?.strip_suffix('-');
    let cron_job = || {
        let (name, number) = owner.name.rsplit_once('-')?;
        (number.len() >= 8 && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(name)
    };
    let (kind, name) = match owner.kind.as_str() {
        "ReplicaSet" => deployment().map(|name| ("Deployment", name)),
        "Job" => cron_job().map(|name| ("CronJob", name)),
        "Node" => Some(("Pod", pod_name)),
        _ => None,
    }
    .unwrap_or((owner.kind.as_str(), owner.name.as_str()));
    Workload { kind: kind.to_owned(), name: name.to_owned() }
}

#[cfg(test)]
pub(crate) mod tests {
    use daemon::control::target_set::TargetSet;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "12345678-1234-1234-1234-123456789abc";

    /// A running pod of a Deployment, as the API server tells it.
    pub(crate) fn pod_json() -> Value {
        json!({
            "metadata": {
                "name": "web-5d4f9c7b8-x2x4k", "namespace": "shop", "uid": UID,
                "labels": { "pod-template-hash": "5d4f9c7b8" },
                "annotations": { "hugepilot.io/mode": "promote", "other": "x" },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f9c7b8", "uid": "u", "controller": true }],
            },
            "status": {
                "phase": "Running", "qosClass": "Burstable",
                "containerStatuses": [
                    { "name": "app", "containerID": "containerd://abc", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                      "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } },
                    { "name": "waits", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                      "state": { "waiting": { "reason": "ContainerCreating" } } },
                ],
            },
        })
    }

    pub(crate) fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    pub(crate) fn facts(value: Value) -> PodFacts {
        PodFacts::of(&pod(value)).expect("it is on the node")
    }

    /// The target of the first container with these settings.
    pub(crate) fn target_with(settings: &PodSettings) -> GroupTarget {
        facts(pod_json()).targets(settings, "/").next().expect("a container")
    }

    #[test]
    fn a_trial_promotes_some_replicas_and_observes_the_others() {
        let on_trial = |uid: &str, mode: &str| {
            let mut value = pod_json();
            value["metadata"]["uid"] = uid.into();
            value["metadata"]["annotations"] = json!({ "hugepilot.io/trial": "50%", "hugepilot.io/mode": mode });
            let pod = facts(value);
            let (settings, wrong) =
                crate::annotations::settings(&PodSettings::default(), &Annotations::new(), &pod.annotations);
            assert!(wrong.is_empty(), "{wrong:?}");
            let target = pod.targets(&settings, "/").next().expect("a container");
            (target.mode, target.labels.get("arm").cloned())
        };
        let uids: Vec<String> = (0..40).map(|number| format!("{number:08x}-1234-1234-1234-123456789abc")).collect();
        let mut arms: Vec<_> = uids.iter().map(|uid| on_trial(uid, "observe")).collect();
        arms.sort_by_key(|(mode, _)| *mode);
        arms.dedup();
        let both =
            [(GroupMode::Observe, Some("observed".to_owned())), (GroupMode::Promote, Some("promoted".to_owned()))];
        assert_eq!(arms, both);
        assert_eq!(on_trial(&uids[0], "off"), (GroupMode::Off, None), "what is off is in no trial");
    }

    #[test]
    fn each_running_container_is_a_target_with_the_pods_labels() {
        let settings =
            PodSettings { mode: GroupMode::Promote, max_growth: Some("2%".to_owned()), ..PodSettings::default() };
        let targets: Vec<GroupTarget> = facts(pod_json()).targets(&settings, "/").collect();
        let [target] = &targets[..] else { panic!("{targets:?}") };
        assert_eq!(target.cgroups[0], format!("/kubepods/burstable/pod{UID}/abc"));
        assert_eq!((target.mode, target.max_growth.as_deref()), (GroupMode::Promote, Some("2%")));
        let labels: Vec<(&str, &str)> =
            target.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("container", "app"),
            ("namespace", "shop"),
            ("pod", "web-5d4f9c7b8-x2x4k"),
            ("workload", "web"),
            ("workload_kind", "Deployment"),
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn whoever_was_killed_for_lack_of_memory_is_only_observed_from_then_on() {
        let mut value = pod_json();
        let before = facts(value.clone());
        value["status"]["containerStatuses"][0]["lastState"] =
            json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
        let settings = PodSettings { mode: GroupMode::Promote, ..PodSettings::default() };
        let killed = facts(value).after(Some(&before));
        assert_eq!((killed.out_of_memory.as_deref(), killed.mode(&settings)), (Some("app"), GroupMode::Observe));
        assert_eq!(killed.mode(&PodSettings { mode: GroupMode::Off, ..settings.clone() }), GroupMode::Off);
        let later = facts(pod_json()).after(Some(&killed));
        assert_eq!(later.mode(&settings), GroupMode::Observe, "another end has taken its place in the status");
        assert_eq!(before.mode(&settings), GroupMode::Promote);
    }

    #[test]
    fn workloads_are_those_that_people_make() {
        let of = |kind: &str, name: &str| {
            let mut value = pod_json();
            value["metadata"]["ownerReferences"][0]["kind"] = kind.into();
            value["metadata"]["ownerReferences"][0]["name"] = name.into();
            let Workload { kind, name } = facts(value).workload;
            format!("{kind}/{name}")
        };
        assert_eq!(of("ReplicaSet", "web-5d4f9c7b8"), "Deployment/web");
        assert_eq!(of("ReplicaSet", "made-by-hand"), "ReplicaSet/made-by-hand");
        assert_eq!(of("StatefulSet", "db"), "StatefulSet/db");
        assert_eq!(
            (of("Job", "nightly-28934567"), of("Job", "once-1")),
            ("CronJob/nightly".to_owned(), "Job/once-1".to_owned())
        );
        assert_eq!(of("Node", "node1"), "Pod/web-5d4f9c7b8-x2x4k");
        let mut value = pod_json();
        value["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(facts(value).workload.kind, "Pod");
    }

    #[test]
    fn a_static_pod_has_another_uid_on_the_node_and_a_new_one_has_no_place_yet() {
        let mut value = pod_json();
        value["metadata"]["annotations"][STATIC_POD_UID] = "00ff".into();
        assert_eq!(facts(value.clone()).group_uid, "00ff");
        value["metadata"]["annotations"][STATIC_POD_UID] = "../x".into();
        assert_eq!(PodFacts::of(&pod(value)), None);
        let mut value = pod_json();
        value["status"] = json!({ "phase": "Pending" });
        assert_eq!(PodFacts::of(&pod(value)), None);
    }

    proptest! {
        #[test]
        fn whatever_a_status_says_the_daemon_takes_the_targets(
            id in "(containerd|cri-o|.{0,3})://.{0,9}",
            uid in ".{0,9}|[0-9a-f-]{1,36}",
            container in "[a-z0-9-]{1,63}",
        ) {
            let mut value = pod_json();
            value["metadata"]["uid"] = uid.into();
            value["status"]["containerStatuses"][0]["containerID"] = id.into();
            value["status"]["containerStatuses"][0]["name"] = container.into();
            if let Some(facts) = PodFacts::of(&pod(value)) {
                let targets = facts.targets(&PodSettings::default(), "/").collect();
                let set = TargetSet { owner: "kubernetes".to_owned(), targets };
                prop_assert!(set.assignments().is_ok());
            }
        }
    }
}
