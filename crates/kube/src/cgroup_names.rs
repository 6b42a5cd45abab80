//! How the control group of a container is named.
//!
//! Owns: kubelet's and the engines' naming, for both of kubelet's drivers. Never touches: the file system; the daemon knows which names exist.
//!
//! The agent cannot see which driver kubelet uses, and need not: each container has one group, whose name under either driver is known.

/// A pod's class of service, which is part of its group's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "Kubernetes' own names")]
pub enum ServiceClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl ServiceClass {
    /// As a pod's status says it; None for what Kubernetes does not know.
    pub fn parse(class: &str) -> Option<Self> {
        match class {
            "Guaranteed" => Some(Self::Guaranteed),
            "Burstable" => Some(Self::Burstable),
            "BestEffort" => Some(Self::BestEffort),
            _ => None,
        }
    }

    fn group(self) -> Option<&'static str> {
        match self {
            Self::Guaranteed => None,
            Self::Burstable => Some("burstable"),
            Self::BestEffort => Some("besteffort"),
        }
    }
}

/// A container as a pod's status names it: `containerd://4f66..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerKey {
    engine: String,
    id: String,
}

impl ContainerKey {
    /// None if that is no such name.
    pub fn parse(text: &str) -> Option<Self> {
        let (engine, id) = text.split_once("://")?;
        let right = |text: &str| {
            (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        (right(engine) && right(id)).then(|| Self { engine: engine.to_owned(), id: id.to_owned() })
    }

    /// What the engine puts before the id.
    fn prefix(&self) -> &str {
        match self.engine.as_str() {
            "containerd" => "cri-containerd",
            "cri-o" => "crio",
            other => other,
        }
    }
}

/// The names that a container's group may have. `root`: kubelet's cgroupRoot; `uid`: the pod's, as kubelet uses it.
pub fn names(root: &str, class: ServiceClass, uid: &str, container: &ContainerKey) -> Vec<String> {
    let pod = format!("pod{uid}");
    let above = root.split('/').filter(|part| !part.is_empty()).chain(["kubepods"]);
    let parts: Vec<&str> = above.chain(class.group()).chain([pod.as_str()]).collect();
    let (plain, slices) = (format!("/{}", parts.join("/")), slices(&parts));
    let (id, prefix) = (&container.id, container.prefix());
    let mut names = vec![format!("{plain}/{id}"), format!("{slices}/{prefix}-{id}.scope")];
    if prefix == "crio" {
        names.push(format!("{plain}/{prefix}-{id}"));
    }
    names
}

/// systemd's slices: each is named after all above it, and has no dash of its own.
fn slices(parts: &[&str]) -> String {
    let (mut path, mut name) = (String::new(), String::new());
    for part in parts {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.replace('-', "_"));
        path.push_str(&format!("/{name}.slice"));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "12345678-1234-1234-1234-123456789abc";

    fn container(text: &str) -> ContainerKey {
        ContainerKey::parse(text).expect("a container")
    }

    #[test]
    fn a_container_is_named_as_either_driver_names_it() {
        let pod = "kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice";
        assert_eq!(
            names("/", ServiceClass::Burstable, UID, &container("containerd://abc")),
            [
                format!("/kubepods/burstable/pod{UID}/abc"),
                format!("/kubepods.slice/kubepods-burstable.slice/{pod}/cri-containerd-abc.scope"),
            ]
        );
        assert_eq!(
            names("", ServiceClass::Guaranteed, "a-1", &container("cri-o://abc")),
            [
                "/kubepods/poda-1/abc",
                "/kubepods.slice/kubepods-poda_1.slice/crio-abc.scope",
                "/kubepods/poda-1/crio-abc"
            ]
        );
        assert_eq!(
            names("/kubelet", ServiceClass::BestEffort, "1", &container("docker://abc")),
            [
                "/kubelet/kubepods/besteffort/pod1/abc",
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1.slice/docker-abc.scope",
            ]
        );
    }

    #[test]
    fn what_is_no_container_or_class_is_not_taken_for_one() {
        for wrong in ["", "abc", "://abc", "docker://", "docker://a/../b", "docker://a\n", "dock er://a"] {
            assert_eq!(ContainerKey::parse(wrong), None, "{wrong}");
        }
        assert_eq!(ServiceClass::parse("burstable"), None);
    }
}
