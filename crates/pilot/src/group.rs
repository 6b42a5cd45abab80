//! Observing several processes: a program with its descendants, or those of a service.
//!
//! Owns: which of them are left out. Never touches: which processes are meant, or how heats are joined; that is [`Group`].
//!
//! Processes are observed one after the other, each for a whole window: the accessed bits of shared memory are in each process's own page tables, so
//! reading one hides nothing of the next.

use heat::{Group, Heat};
use hugepilot_os::stop::Stop;
use kernel::target::Target;
use observe::{ObserveError, ObserveOptions, Tracker};

/// The observation of a group.
#[derive(Clone, Debug, Default)]
pub struct GroupSeen {
    /// The processes that were observed.
    pub group: Group,
    /// Those that were not, each with the reason.
    pub left_out: Vec<(u32, String)>,
}

/// Why a group could not be observed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum GroupError {
    #[error("no process of the group could be observed, of {tried} in it; the first: {reason}")]
    NothingSeen { tried: usize, reason: String },
    #[error(transparent)]
    Observe(#[from] ObserveError),
}

/// Observes processes one after the other, each for one window. A signal ends it early, and those observed so far count.
///
/// Errors: none could be observed, or the tracker cannot observe any process.
pub fn observe_group(
    processes: &[u32],
    tracker: &mut dyn Tracker,
    options: &ObserveOptions,
    stop: &Stop,
    mut progress: impl FnMut(u64),
) -> Result<GroupSeen, GroupError> {
    let mut seen = GroupSeen::default();
    for (done, &pid) in processes.iter().enumerate() {
        progress(done as u64);
        match scan(pid, tracker, options, stop)? {
            Ok((name, heat)) => seen.group.add(&name, &heat),
            Err(reason) => seen.left_out.push((pid, reason)),
        }
    }
    match seen.left_out.first() {
        Some((_, reason)) if seen.group.members().len() == 0 => {
            Err(GroupError::NothingSeen { tried: processes.len(), reason: reason.clone() })
        }
        _ => Ok(seen),
    }
}

/// One process's name and heat, or why it is left out. Errors: causes that affect all processes.
fn scan(
    pid: u32,
    tracker: &mut dyn Tracker,
    options: &ObserveOptions,
    stop: &Stop,
) -> Result<Result<(String, Heat), String>, ObserveError> {
    let target = match Target::open(pid) {
        Ok(target) => target,
        Err(error) => return Ok(Err(error.to_string())),
    };
    match tracker.observe(&target, options, stop) {
        Ok(heat) => Ok(Ok((target.name, heat))),
        Err(error @ (ObserveError::Exec { .. } | ObserveError::Stopped(_))) => Ok(Err(error.to_string())),
        Err(error) if target.handle().has_exited() => Ok(Err(error.to_string())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use heat::TrackerKind;
    use heat::samples::heat_of;

    use super::*;

    /// Sees every process except one that calls exec; a signal comes at the one after.
    struct Scripted {
        exec: u32,
        stop: Stop,
    }

    impl Tracker for Scripted {
        fn kind(&self) -> TrackerKind {
            TrackerKind::PageWalk
        }

        fn observe(&mut self, target: &Target, _: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
            stop.check()?;
            if target.pid() == self.exec {
                self.stop.request();
                return Err(ObserveError::Exec { pid: self.exec });
            }
            Ok(Heat { pid: target.pid(), ..heat_of(Vec::new()) })
        }

        fn survey(&mut self, _: &Target) -> Result<Heat, ObserveError> {
            unreachable!("a group is only observed")
        }

        fn survey_growth(&mut self, _: &Target) -> Result<Heat, ObserveError> {
            unreachable!("a group is only observed")
        }
    }

    #[test]
    fn whoever_cannot_be_observed_is_left_out_with_the_reason() {
        let mut children: Vec<_> = (0..3).map(|_| Command::new("sleep").arg("60").spawn().unwrap()).collect();
        let ids: Vec<u32> = children.iter().map(std::process::Child::id).collect();
        let stop = Stop::default();
        let mut tracker = Scripted { exec: ids[1], stop: stop.clone() };
        let options = ObserveOptions { window: heat::units::Nanos(0), ..ObserveOptions::default() };
        // A kernel thread or, in a container, no process.
        let processes = [2, ids[0], ids[1], ids[2], u32::MAX >> 1];
        let seen = observe_group(&processes, &mut tracker, &options, &stop, |_| ());
        let none = observe_group(&[ids[2]], &mut tracker, &options, &stop, |_| ());
        children.iter_mut().for_each(|child| child.kill().and_then(|()| child.wait().map(drop)).unwrap());
        let seen = seen.unwrap();
        assert_eq!(seen.group.members().map(|member| member.summary.pid).collect::<Vec<_>>(), [ids[0]]);
        let left_out: Vec<u32> = seen.left_out.iter().map(|&(pid, _)| pid).collect();
        assert_eq!(left_out, [2, ids[1], ids[2], u32::MAX >> 1]);
        assert!(seen.left_out[1].1.contains("(exec)") && seen.left_out[2].1.contains("signal"), "{seen:?}");
        assert!(none.unwrap_err().to_string().contains("of 1 in it; the first: stopped by a signal"));
    }
}
