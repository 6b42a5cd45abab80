//! What to do where the kernel refuses something for want of rights.
//!
//! Owns: those words. Never touches: the rights.

/// The next step: root, or these capabilities; to root, who has withheld them. Stands at the end of a sentence.
pub fn remedy(capabilities: &str) -> String {
    remedy_for(rustix::process::geteuid().is_root(), capabilities)
}

fn remedy_for(is_root: bool, capabilities: &str) -> String {
    if is_root {
        format!(
            "a container, a service, a user namespace or a security module withholds {capabilities} from root; allow that there (docker run \
             --cap-add, AmbientCapabilities=), or run hugepilot on the host"
        )
    } else {
        format!("run as root, or with {capabilities}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_never_told_to_become_root() {
        assert_eq!(remedy_for(false, "CAP_BPF"), "run as root, or with CAP_BPF");
        let root = remedy_for(true, "CAP_BPF");
        assert!(root.contains("withholds CAP_BPF from root") && !root.contains("run as root"), "{root}");
    }
}
