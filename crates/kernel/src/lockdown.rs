//! How far the kernel is locked down, from `/sys/kernel/security/lockdown`.
//!
//! Owns: that file (man 7 kernel_lockdown). Never touches: the state, which can only be raised.

use heat::names::named;
use serde::Deserialize;

use crate::root::optional;
use crate::thp::Setting;
use crate::{KernelError, Root};

/// How much of the kernel is closed even to root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lockdown {
    /// No restriction.
    None,
    /// The kernel cannot be changed.
    Integrity,
    /// In addition, its memory cannot be read: BPF programs that do are refused.
    Confidentiality,
}

/// The lockdown level; `None` if unknown: no lockdown in this kernel, or securityfs not mounted.
///
/// Errors: `/sys/kernel/security/lockdown` exists but cannot be read, or has no choice in brackets.
pub fn read(root: &Root) -> Result<Option<Lockdown>, KernelError> {
    let setting = optional(root.parsed("sys/kernel/security/lockdown", Root::LIMIT, Setting::parse))?;
    Ok(setting.and_then(|setting| named(&setting.chosen)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_state_is_read() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(read(&root).unwrap(), None);
        fs::create_dir_all(tree.path().join("sys/kernel/security")).unwrap();
        for (text, state) in [
            ("[none] integrity confidentiality\n", Lockdown::None),
            ("none [integrity] confidentiality\n", Lockdown::Integrity),
            ("none integrity [confidentiality]\n", Lockdown::Confidentiality),
        ] {
            fs::write(tree.path().join("sys/kernel/security/lockdown"), text).unwrap();
            assert_eq!(read(&root).unwrap(), Some(state));
        }
    }
}
