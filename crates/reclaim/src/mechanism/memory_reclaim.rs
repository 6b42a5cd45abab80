//! Reclaim by `memory.reclaim`: the kernel reclaims memory of control groups as if it were short, oldest first.
//!
//! Owns: how much is requested from which group. Never touches: limits, or groups of version 1, which have no such file
//! (Documentation/admin-guide/cgroup-v2.rst).
//!
//! It does not distinguish mapped from unmapped memory: the kernel reclaims what it finds unused. With `swappiness=0` (Linux 6.8)
//! it leaves anonymous and shared memory alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use heat::memory_use::{MemoryUse, Uses};
use heat::units::Bytes;
use hugepilot_os::stop::Stop;
use kernel::{Root, cgroup};

use crate::mechanism::{Effect, Mechanism, MechanismKind, ReclaimError};
use crate::policy::Batch;

/// Requested in one call, which returns only after the kernel has tried that much.
const MOST_AT_ONCE: Bytes = Bytes(64 << 20);

/// `memory.reclaim` of the topmost groups.
#[derive(Debug)]
pub struct MemoryReclaim {
    root: Root,
    /// Their directories.
    groups: Vec<String>,
    /// Whether it can be told to spare memory that would have to be swapped.
    spares_swap: bool,
    fell_short: u64,
    calls: u64,
}

impl MemoryReclaim {
    /// Errors: version 2 is not mounted, no group has the file, or it may not be written.
    pub fn open(root: &Root) -> Result<Self, ReclaimError> {
        let groups = cgroup::with_file(root, FILE)?.ok_or(ReclaimError::NoCgroups)?;
        let first = groups.first().ok_or(ReclaimError::NoMemoryReclaim)?;
        let path = root.path(&format!("{first}/{FILE}"));
        write(&path, "0")?;
        let spares_swap = write(&path, &format!("0 {SPARE_SWAP}")).is_ok();
        Ok(Self { root: root.clone(), groups, spares_swap, fell_short: 0, calls: 0 })
    }

    fn batch(&mut self, batch: &Batch, stop: &Stop) -> Result<Vec<Effect>, ReclaimError> {
        let argument = if self.spares_swap && !batch.uses.iter().any(MemoryUse::needs_swap) { SPARE_SWAP } else { "" };
        let held: Vec<Held> = self.groups.iter().map(|group| Held::read(&self.root, group)).collect();
        let all: Bytes = held.iter().map(|held| held.of(batch.uses)).sum();
        let mut effects = counted().map(|uses| Effect { uses: uses.and(batch.uses), ..Effect::default() });
        for (group, before) in self.groups.clone().iter().zip(held) {
            if all == Bytes(0) || stop.requested() {
                break;
            }
            let part = u128::from(batch.bytes.0) * u128::from(before.of(batch.uses).0) / u128::from(all.0);
            self.ask(group, Bytes(part as u64), argument, stop)?;
            let after = Held::read(&self.root, group);
            for effect in &mut effects {
                let gone = before.of(effect.uses).saturating_sub(after.of(effect.uses));
                effect.applied += gone;
                effect.reclaimed += gone;
            }
        }
        Ok(effects.into_iter().filter(|effect| !effect.uses.is_empty()).collect())
    }

    /// Requests this much from a group, in parts. It is not an error if the group has less to give.
    fn ask(&mut self, group: &str, bytes: Bytes, argument: &str, stop: &Stop) -> Result<(), ReclaimError> {
        let path = self.root.path(&format!("{group}/{FILE}"));
        let mut left = bytes;
        while left > Bytes(0) && !stop.requested() {
            let part = left.min(MOST_AT_ONCE);
            self.calls += 1;
            match write(&path, format!("{} {argument}", part.0).trim_end()) {
                Ok(()) => left = left.saturating_sub(part),
                Err(ReclaimError::MemoryReclaim { cause, .. }) if is_short(&cause) => {
                    self.fell_short += 1;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

const FILE: &str = "memory.reclaim";
const SPARE_SWAP: &str = "swappiness=0";
/// The sets of uses that `memory.stat` counts together.
fn counted() -> [Uses; 4] {
    [Uses::MAPPED_FILES, only(MemoryUse::UnmappedCache), only(MemoryUse::Anonymous), only(MemoryUse::Shared)]
}

fn only(class: MemoryUse) -> Uses {
    [class].into_iter().collect()
}

/// The group had less to give, has gone, or a signal interrupted.
fn is_short(cause: &io::Error) -> bool {
    matches!(cause.raw_os_error(), Some(libc::EAGAIN | libc::ENODEV | libc::ENOENT | libc::EINTR))
}

fn write(path: &Path, value: &str) -> Result<(), ReclaimError> {
    let failed = |cause| ReclaimError::MemoryReclaim { path: PathBuf::from(path), value: value.to_owned(), cause };
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
        .map_err(failed)
}

/// What a group holds of each set in [`counted`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held([Bytes; 4]);

impl Held {
    /// Zero for a group that has gone.
    fn read(root: &Root, group: &str) -> Self {
        let text = root.text(&format!("{group}/memory.stat")).unwrap_or_default();
        let value = |name: &str| cgroup::statistic(&text, name).map_or(Bytes(0), Bytes);
        let mapped = value("file_mapped");
        // Only reclaimable file pages are on these lists: no shared memory, and nothing locked.
        let takeable = value("active_file") + value("inactive_file");
        Self([mapped, takeable.saturating_sub(mapped), value("anon"), value("shmem")])
    }

    fn of(self, uses: Uses) -> Bytes {
        let both = counted().into_iter().zip(self.0);
        both.filter(|(counted, _)| !counted.and(uses).is_empty()).map(|(_, bytes)| bytes).sum()
    }
}

impl Mechanism for MemoryReclaim {
    fn kind(&self) -> MechanismKind {
        MechanismKind::MemoryReclaim
    }

    fn reach(&self) -> Vec<Uses> {
        if self.spares_swap { vec![Uses::OF_FILES, Uses::ALL] } else { vec![Uses::ALL] }
    }

    fn step(&mut self, batches: &[Batch], stop: &Stop) -> Result<Vec<Effect>, ReclaimError> {
        let effects: Vec<Vec<Effect>> =
            batches.iter().map(|batch| self.batch(batch, stop)).collect::<Result<_, _>>()?;
        Ok(effects.concat())
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([("groups", self.groups.len() as u64), ("calls", self.calls), ("fell_short", self.fell_short)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with version 2, and these groups with this much unmapped cache.
    fn machine(groups: &[(&str, u64)]) -> (tempfile::TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = tree.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
        write("sys/fs/cgroup/cgroup.procs", "");
        for (group, cache) in groups {
            let stat =
                format!("anon 1000\nfile 9999\nshmem 100\nfile_mapped 200\ninactive_file {cache}\nactive_file 200\n");
            write(&format!("sys/fs/cgroup/{group}/memory.stat"), &stat);
            write(&format!("sys/fs/cgroup/{group}/memory.reclaim"), "");
        }
        let root = Root::at(tree.path());
        (tree, root)
    }

    fn asked(root: &Root, group: &str) -> String {
        root.text(&format!("sys/fs/cgroup/{group}/memory.reclaim")).unwrap()
    }

    #[test]
    fn each_group_is_asked_for_its_part() {
        let (_tree, root) = machine(&[("system.slice", 3000), ("user.slice", 800)]);
        let mut reclaim = MemoryReclaim::open(&root).unwrap();
        // From groups of 3,200 and 1,000.
        let batch = Batch { uses: Uses::OF_FILES, bytes: Bytes(420), most: Bytes(420) };
        let effects = reclaim.step(&[batch], &Stop::default()).unwrap();
        assert!(asked(&root, "system.slice").starts_with("320 swappiness=0"), "{}", asked(&root, "system.slice"));
        assert!(asked(&root, "user.slice").starts_with("100 swappiness=0"));
        assert!(effects.iter().all(|effect| effect.reclaimed == Bytes(0)), "nothing has gone here: {effects:?}");
        assert_eq!((effects.len(), reclaim.counts()["calls"]), (2, 2));
    }

    #[test]
    fn what_a_group_holds_is_told_by_use() {
        let (_tree, root) = machine(&[("a", 3000)]);
        let held = Held::read(&root, "sys/fs/cgroup/a");
        assert_eq!(held, Held([Bytes(200), Bytes(3000), Bytes(1000), Bytes(100)]));
        assert_eq!(held.of(Uses::OF_FILES), Bytes(3200));
        assert_eq!(Held::read(&root, "sys/fs/cgroup/gone"), Held::default());
    }

    #[test]
    fn machines_without_it_are_told_apart() {
        let (tree, root) = machine(&[]);
        assert!(matches!(MemoryReclaim::open(&root), Err(ReclaimError::NoMemoryReclaim)));
        fs::write(tree.path().join("proc/self/mountinfo"), "").unwrap();
        let error = MemoryReclaim::open(&root).unwrap_err().to_string();
        assert!(error.contains("version 1 has none") && error.contains("--drop-behind"), "{error}");
    }
}
