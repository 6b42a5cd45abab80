//! Where a process runs: its container, and its systemd service or scope.
//!
//! Owns: telling them from the names of control groups. Never touches: the groups.

use kernel::Root;
use kernel::cgroup::{containers, groups, units};

/// Digits of a container's id, as its engine shows it.
const SHOWN_OF_ID: usize = 12;

/// Where a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessPlace {
    /// The first digits of the container's id.
    pub container: Option<String>,
    /// The systemd service or scope.
    pub service: Option<String>,
}

impl ProcessPlace {
    /// Of a process; neither if its control groups cannot be read.
    pub(crate) fn of(root: &Root, pid: u32) -> Self {
        groups(root, pid).map(|groups| Self::named(groups.iter().map(String::as_str))).unwrap_or_default()
    }

    /// From the names of its control groups.
    fn named<'a>(groups: impl Iterator<Item = &'a str>) -> Self {
        let mut place = Self::default();
        for group in groups {
            if let Some(id) = containers(group).last() {
                place.container = Some(id[..SHOWN_OF_ID].to_owned());
            }
            let unit = units(group).next_back().filter(|unit| containers(unit).next().is_none());
            place.service = unit.map(str::to_owned).or(place.service);
        }
        place
    }

    /// What to call it.
    pub(crate) fn name(&self) -> Option<String> {
        self.container.clone().or_else(|| self.service.clone())
    }

    /// The service, which the next process of the same program runs in, too. Scopes and containers are new each time, and a user's services and
    /// sessions hold whatever the user starts.
    pub(crate) fn lasting(self) -> Option<String> {
        let is_lasting = |service: &String| service.ends_with(".service") && !service.starts_with("user@");
        self.service.filter(is_lasting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_of_the_machine_lasts() {
        let lasting = |group| ProcessPlace::named([group].into_iter()).lasting();
        assert_eq!(lasting("/system.slice/postgresql.service").as_deref(), Some("postgresql.service"));
        assert_eq!(lasting("/user.slice/user-0.slice/session-3.scope"), None);
        assert_eq!(lasting("/user.slice/user-7.slice/user@7.service"), None);
        assert_eq!(lasting("/"), None);
    }
}
