//! The tracker `perf-mem`: the processor samples memory accesses and tells which of them missed the TLB (Intel's PEBS, AMD's IBS).
//!
//! Owns: sampling one process for one window. Never touches: accessed bits, the TLB, or the target's memory in any way.
//!
//! *Bits*: sampled walks. *Bias*: loads only (with IBS also stores), one access in many, so a lukewarm page is rarely met; Intel processors with
//! unknown events sample one load at a time, so their rates are lower bounds; on hybrid processors, accesses on the small cores are not seen. *Cost*:
//! one interrupt per sample, about [`SAMPLES_PER_SECOND`] in each running thread, or fewer where the kernel allows no more.

pub mod samples;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use heat::units::Nanos;
use heat::{Cost, Heat, Meaning, TrackerKind};
use hugepilot_os::perf::{EventScope, Rate, Sampler, Sampling};
use hugepilot_os::rights::remedy;
use hugepilot_os::stop::Stop;
use kernel::pmu::{MemorySampling, memory_sampling, most_samples_per_second};
use kernel::target::Target;
use kernel::{KernelError, Root, cpu, process};

use crate::perf_mem::samples::FIELDS;
use crate::perf_mem::tally::Tally;
use crate::survey::Survey;
use crate::window::Window;
use crate::{ObserveError, ObserveOptions, Tracker, wait_until};

const SAMPLES_PER_SECOND: u64 = 4000;
/// The time between scans of the samples, in which they fill half of the ring.
const POLL: Duration = Duration::from_millis(100);
/// What a program loses per sample: the interrupt and the processor's own record. A high assumption, because it was not measured on a machine with
/// such a processor.
const TAKING_A_SAMPLE: Nanos = Nanos(5_000);

/// Why accesses cannot be sampled.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum PerfError {
    #[error(
        "this machine has no PMU that samples memory accesses: /sys/bus/event_source/devices has neither the event mem-loads of \
         Intel's `cpu` nor AMD's `ibs_op`, as is usual in virtual machines; choose another tracker, such as page-walk"
    )]
    NoPmu,
    #[error("the kernel refused to sample memory accesses with the PMU `{device}`: {cause}. {}", next_step(cause))]
    Refused { device: &'static str, cause: io::Error },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl PerfError {
    fn is(&self, errno: i32) -> bool {
        matches!(self, PerfError::Refused { cause, .. } if cause.raw_os_error() == Some(errno))
    }
}

fn next_step(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => format!(
            "Set kernel.perf_event_paranoid to 1 or below, or {}",
            remedy("CAP_PERFMON, and CAP_SYS_PTRACE for another user's process")
        ),
        Some(libc::EMFILE) => "Each thread of the program takes a file: raise the limit (`ulimit -n`)".to_owned(),
        Some(libc::EBUSY) => {
            "Another profiler has the PMU; end it, or choose another tracker, such as page-walk".to_owned()
        }
        _ => "Choose another tracker, such as page-walk".to_owned(),
    }
}

/// `perf-mem`.
pub struct PerfMem {
    root: Root,
    pmu: MemorySampling,
    /// Whole processors are sampled, because the kernel cannot follow a thread (IBS before Linux 6.2).
    by_processor: bool,
    /// Samples do not tell what is present and what is huge.
    survey: Survey,
}

impl PerfMem {
    /// Ready to observe any process, after a trial on this one. Errors: no PMU samples accesses, the kernel refuses, or the tables of page frames are
    /// missing.
    pub fn new() -> Result<Self, ObserveError> {
        let root = Root::host();
        let pmu = memory_sampling(&root)?.ok_or(PerfError::NoPmu)?;
        let tried = |scope| open(&root, &pmu, scope).map(drop);
        let by_processor = match tried(EventScope::Thread(0)) {
            Err(error) if error.is(libc::EINVAL) => tried(EventScope::Cpu(0)).map(|()| true),
            tried => tried.map(|()| false),
        }?;
        let survey = Survey::new(&root, TrackerKind::PerfMem, Meaning::Sampled)?;
        Ok(Self { root, pmu, by_processor, survey })
    }

    /// Where the target runs now.
    fn scopes(&self, pid: u32) -> Result<BTreeSet<EventScope>, ObserveError> {
        Ok(if self.by_processor {
            cpu::online(&self.root)?.into_iter().map(EventScope::Cpu).collect()
        } else {
            process::threads(&self.root, pid)?.into_iter().map(EventScope::Thread).collect()
        })
    }

    /// Samples until `end`.
    fn sample(&self, target: &Target, end: Instant, stop: &Stop, cost: &mut Cost) -> Result<Tally, ObserveError> {
        let pid = target.pid();
        let mut tally = Tally::of(pid, self.pmu.only_walks);
        let mut samplers = Samplers::new(&self.root, self.pmu);
        samplers.follow(&self.scopes(pid)?)?;
        while Instant::now() < end {
            wait_until(end.min(Instant::now() + POLL), target, stop)?;
            let reading = Instant::now();
            samplers.take(&mut tally);
            samplers.follow(&self.scopes(pid)?)?;
            cost.read += Nanos::since(reading);
            cost.reads += 1;
        }
        cost.program = Nanos(tally.samples.saturating_mul(TAKING_A_SAMPLE.0));
        Ok(tally)
    }
}

impl Tracker for PerfMem {
    fn kind(&self) -> TrackerKind {
        TrackerKind::PerfMem
    }

    fn observe(&mut self, target: &Target, options: &ObserveOptions, stop: &Stop) -> Result<Heat, ObserveError> {
        let window = Window::begin(&self.root, target.pid())?;
        let mut cost = Cost::default();
        let tally = self.sample(target, window.started() + options.window.duration(), stop, &mut cost)?;
        let ended = window.end(&self.root)?;
        let mut heat =
            self.survey.scan(target, options.most_regions, |region, _| tally.has_samples_of(region.start))?;
        tally.warm(&mut heat.regions, ended.length);
        cost.read += heat.cost.read;
        cost.reads += heat.cost.reads;
        cost.inspect = heat.cost.inspect;
        Ok(ended.add_to(Heat { cost, ..heat }))
    }

    fn survey(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey.scan(target, ObserveOptions::MOST_REGIONS, |_, _| false)
    }

    fn survey_growth(&mut self, target: &Target) -> Result<Heat, ObserveError> {
        self.survey.scan(target, ObserveOptions::MOST_REGIONS, |_, _| true)
    }
}

fn open(root: &Root, pmu: &MemorySampling, scope: EventScope) -> Result<Sampler, PerfError> {
    let samples = samples_per_second(root)?;
    match Sampler::open(&sampling(pmu, samples), scope) {
        // The kernel lowers the limit by itself while samples take too long.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) && samples_per_second(root)? < samples => {
            open(root, pmu, scope)
        }
        opened => opened.map_err(|cause| PerfError::Refused { device: pmu.device, cause }),
    }
}

fn samples_per_second(root: &Root) -> Result<u64, KernelError> {
    Ok(most_samples_per_second(root)?.map_or(SAMPLES_PER_SECOND, |most| most.min(SAMPLES_PER_SECOND)))
}

fn sampling(pmu: &MemorySampling, samples_per_second: u64) -> Sampling {
    Sampling {
        event: pmu.event,
        leader: pmu.leader,
        rate: Rate::PerSecond(samples_per_second),
        fields: FIELDS,
        precise: pmu.precise,
    }
}

/// A sampler for each thread, or for each processor.
struct Samplers {
    root: Root,
    pmu: MemorySampling,
    open: BTreeMap<EventScope, Sampler>,
}

impl Samplers {
    fn new(root: &Root, pmu: MemorySampling) -> Self {
        Self { root: root.clone(), pmu, open: BTreeMap::new() }
    }

    /// Samples exactly these from now on.
    fn follow(&mut self, scopes: &BTreeSet<EventScope>) -> Result<(), PerfError> {
        self.open.retain(|scope, _| scopes.contains(scope));
        for &scope in scopes {
            if self.open.contains_key(&scope) {
                continue;
            }
            match open(&self.root, &self.pmu, scope) {
                Ok(sampler) => {
                    sampler.enable().map_err(|cause| PerfError::Refused { device: self.pmu.device, cause })?;
                    self.open.insert(scope, sampler);
                }
                // The thread has ended meanwhile.
                Err(error) if error.is(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, tally: &mut Tally) {
        self.open.values_mut().for_each(|sampler| tally.add(sampler.take()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use heat::Region;
    use heat::samples::region;
    use heat::units::{Address, BASE_PAGE, HUGE_PAGE, PAGES_PER_REGION};
    use hugepilot_os::memory::{AlignedMemory, OwnAdvice};
    use hugepilot_os::perf::Event;

    use super::*;

    /// Page faults, which the kernel samples in software: real records on machines without a PMU.
    const FAULTS: MemorySampling = MemorySampling {
        device: "software",
        event: Event { kind: 1, config: 2, config1: 0, config2: 0 },
        leader: None,
        precise: 0,
        only_walks: true,
    };
    const PAGES: usize = 20_000;
    /// Long enough for the kernel to find the period that gives its rate.
    const ROUNDS: usize = 10;

    /// Whether this process may sample; a failure that is not about rights panics.
    fn permitted(followed: Result<(), PerfError>) -> bool {
        match followed {
            Err(PerfError::Refused { cause, .. }) if cause.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: {cause}");
                return false;
            }
            followed => followed.expect("page faults can be sampled"),
        }
        true
    }

    /// Touches this many pages of new memory repeatedly, in the sampled scopes, and returns regions with the samples. None where this process may not
    /// sample.
    fn regions_touched(scopes: BTreeSet<EventScope>) -> Option<Vec<Region>> {
        let mut memory = AlignedMemory::anonymous(PAGES * BASE_PAGE as usize).unwrap();
        memory.advise(0, PAGES * BASE_PAGE as usize, OwnAdvice::NoHugePage).unwrap();
        let (mut samplers, mut tally) =
            (Samplers::new(&Root::host(), FAULTS), Tally::of(std::process::id(), FAULTS.only_walks));
        if !permitted(samplers.follow(&scopes)) {
            return None;
        }
        for _ in 0..ROUNDS {
            memory.advise(0, PAGES * BASE_PAGE as usize, OwnAdvice::DontNeed).unwrap();
            for page in 0..PAGES {
                memory.bytes_mut()[page * BASE_PAGE as usize] = 1;
                if page % 500 == 0 {
                    samplers.take(&mut tally);
                }
            }
        }
        samplers.take(&mut tally);
        let starts = (memory.address()..).step_by(HUGE_PAGE as usize).take(PAGES / PAGES_PER_REGION);
        let mut regions: Vec<Region> =
            starts.map(|start| Region { start: Address(start), ..region(0, 9.0, 0) }).collect();
        tally.warm(&mut regions, Nanos(1_000_000_000));
        Some(regions)
    }

    fn assert_all_told(regions: &[Region]) {
        let faults: f64 = regions.iter().map(|region| region.walks_per_second).sum();
        // The kernel adapts the period to its rate, and each sample reports its period.
        let touched = (PAGES * ROUNDS) as f64;
        assert!((0.6..1.4).contains(&(faults / touched)), "{faults} of {touched}");
        let sampled: usize = regions.iter().map(|region| region.walked.len()).sum();
        assert!((10..=PAGES).contains(&sampled), "{sampled}");
    }

    #[test]
    fn samples_of_a_thread_stand_for_all_that_it_did() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let Some(regions) = regions_touched(BTreeSet::from([EventScope::Thread(own)])) else { return };
        assert_all_told(&regions);
    }

    #[test]
    fn samples_of_processors_are_those_of_the_process() {
        let processors = cpu::online(&Root::host()).unwrap();
        let Some(regions) = regions_touched(processors.into_iter().map(EventScope::Cpu).collect()) else { return };
        assert_all_told(&regions);
    }

    #[test]
    fn what_is_no_longer_there_is_no_longer_sampled() {
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut samplers = Samplers::new(&Root::host(), FAULTS);
        let ended = EventScope::Thread(i32::MAX as u32);
        if !permitted(samplers.follow(&BTreeSet::from([EventScope::Thread(own), ended]))) {
            return;
        }
        assert_eq!(samplers.open.keys().collect::<Vec<_>>(), [&EventScope::Thread(own)], "the other has ended");
        samplers.follow(&BTreeSet::new()).unwrap();
        assert!(samplers.open.is_empty());
    }

    #[test]
    fn no_more_samples_are_asked_for_than_the_kernel_allows() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(samples_per_second(&root).unwrap(), SAMPLES_PER_SECOND);
        let limit = root.path("proc/sys/kernel/perf_event_max_sample_rate");
        fs::create_dir_all(limit.parent().unwrap()).unwrap();
        for (most, samples) in [("100000\n", SAMPLES_PER_SECOND), ("250\n", 250)] {
            fs::write(&limit, most).unwrap();
            assert_eq!(samples_per_second(&root).unwrap(), samples);
        }
        fs::write(&limit, "many\n").unwrap();
        let error = samples_per_second(&root).unwrap_err().to_string();
        assert!(error.contains("perf_event_max_sample_rate") && error.contains("many"), "{error}");
    }

    #[test]
    fn refusals_say_what_to_do() {
        let refused =
            |errno| PerfError::Refused { device: "cpu", cause: io::Error::from_raw_os_error(errno) }.to_string();
        assert!(refused(libc::EACCES).contains("CAP_PERFMON") && refused(libc::EACCES).contains("perf_event_paranoid"));
        assert!(refused(libc::EMFILE).contains("ulimit -n"));
        assert!(refused(libc::EOPNOTSUPP).contains("page-walk"));
        assert!(PerfError::NoPmu.to_string().contains("virtual machines"));
    }
}
