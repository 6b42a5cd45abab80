//! How far the kernel is locked down, from `/sys/kernel/security/lockdown`.
//!
//! Owns: that file (man 7 kernel_lockdown). Never touches: the state, which can only be raised.

use heat::names::named;
use serde::Deserialize;

use crate::root::optional;
use crate::thp::Setting;
use crate::{KernelError, Root};

/// How much of the kernel even root may not see or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lockdown {
    /// Nothing is withheld.
    None,
    /// The kernel cannot be changed.
    Integrity,
    /// Nor can its memory be read: BPF programs that do are refused.
    Confidentiality,
}

/// The state; `None` where it cannot be told: no lockdown in this kernel, or securityfs not mounted.
///
/// Errors: `/sys/kernel/security/lockdown` is there but cannot be read, or brackets no choice.
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
