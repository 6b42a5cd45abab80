//! The performance monitoring devices below `/sys/bus/event_source/devices`, and which of their events report page walks.
//!
//! Owns: the encoding of events (Documentation/ABI/testing/sysfs-bus-event_source-devices-events and -format), and the table of processors whose
//! events the kernel does not list there. Never touches: a device.

use hugepilot_os::perf::Event;

use crate::cpu::{Cpu, parse_list};
use crate::root::optional;
use crate::{KernelError, Malformed, Root};

/// `PERF_COUNT_HW_INSTRUCTIONS` (include/uapi/linux/perf_event.h), on every processor that counts; of hybrid ones the large cores.
pub const INSTRUCTIONS: Event = Event { kind: 0, config: 1, config1: 0, config2: 0 };

const DEVICES: &str = "sys/bus/event_source/devices";
/// The most terms of one event; the longest that kernels list has six.
const MOST_TERMS: usize = 16;

/// An event whose samples give the address of a memory access, and whether it hit the TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySampling {
    /// The device, by its name in the directory.
    pub device: &'static str,
    /// The event.
    pub event: Event,
    /// Another event that must run with it.
    pub leader: Option<Event>,
    /// How precisely a sample must be attributed to its instruction.
    pub precise: u8,
    /// Each sample is a walk, without having to say so.
    pub only_walks: bool,
}

/// The events that count the cycles in which page walks were under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkEvents {
    /// Cycles in which the processor ran.
    pub cycles: Event,
    /// Cycles in which a load's walk was under way.
    pub loads: Event,
    /// Cycles in which a store's walk was under way.
    pub stores: Event,
}

/// The event that samples memory accesses here: Intel's PEBS or AMD's IBS. None where the machine has neither, like most virtual machines.
///
/// Errors: the device's `type`, or a file below its `events` or `format`, cannot be read or is malformed.
pub fn memory_sampling(root: &Root) -> Result<Option<MemorySampling>, KernelError> {
    // On hybrid processors the fast cores are `cpu_core`.
    for device in ["cpu", "cpu_core"] {
        if root.exists(&format!("{DEVICES}/{device}/events/mem-loads"))? {
            return intel(root, device).map(Some);
        }
    }
    // Without `cnt_ctl` IBS samples by cycles, which says nothing about the number of accesses.
    if root.exists(&format!("{DEVICES}/ibs_op/format/cnt_ctl"))? {
        return amd(root).map(Some);
    }
    Ok(None)
}

/// The most samples a second: the administrator's limit, which the kernel lowers by itself while samples take too long
/// (Documentation/admin-guide/sysctl/kernel.rst). None where the kernel does not say.
///
/// Errors: `perf_event_max_sample_rate` exists but cannot be read, or holds no number.
pub fn most_samples_per_second(root: &Root) -> Result<Option<u64>, KernelError> {
    optional(root.number("proc/sys/kernel/perf_event_max_sample_rate"))
}

/// On known processors, the loads that walked are sampled themselves. The event that the kernel lists samples one load at a time, so it tells which
/// loads walk but not how many.
fn intel(root: &Root, device: &'static str) -> Result<MemorySampling, KernelError> {
    let kind = kind(root, device)?;
    let walked = Core::here(root).filter(|_| device == "cpu").map(|_| raw(kind, STLB_MISS_LOADS));
    let leader = "mem-loads-aux";
    let needs_leader = walked.is_none() && root.exists(&format!("{DEVICES}/{device}/events/{leader}"))?;
    Ok(MemorySampling {
        device,
        event: match walked {
            Some(event) => event,
            None => listed(root, device, "mem-loads")?,
        },
        leader: if needs_leader { Some(listed(root, device, leader)?) } else { None },
        precise: 2,
        only_walks: walked.is_some(),
    })
}

fn amd(root: &Root) -> Result<MemorySampling, KernelError> {
    let device = "ibs_op";
    let event = encoded(root, device, &[("cnt_ctl".to_owned(), 1)])?;
    Ok(MemorySampling { device, event, leader: None, precise: 0, only_walks: false })
}

/// The events that count cycles of page walks here. None where no device has any, or they are not known: AMD's have no such event.
///
/// Errors: the `type` of the device `cpu` cannot be read, or is not a number.
pub fn walk_events(root: &Root) -> Result<Option<WalkEvents>, KernelError> {
    if !root.exists(&format!("{DEVICES}/cpu/type"))? {
        return Ok(None);
    }
    let Some(cpu) = Cpu::read(root).ok() else { return Ok(None) };
    // A share of the cycles without the longer part of a walk would understate the possible gain.
    let Some(core) = Core::of(&cpu).filter(|core| !cpu.virtual_machine || core.counts_nested_walks()) else {
        return Ok(None);
    };
    let kind = kind(root, "cpu")?;
    let [loads, stores] = core.walk_active().map(|config| raw(kind, config));
    Ok(Some(WalkEvents { cycles: raw(kind, CYCLES), loads, stores }))
}

/// `MEM_INST_RETIRED.STLB_MISS_LOADS`, umask 0x11: loads that missed the second-level TLB, the same on all cores of the table.
const STLB_MISS_LOADS: u64 = 0x11d0;
/// `CPU_CLK_UNHALTED.THREAD_P`
const CYCLES: u64 = 0x003c;
/// Umask 0x10 of `DTLB_LOAD_MISSES` and `DTLB_STORE_MISSES` with a counter mask of 1: `WALK_ACTIVE`.
const WALK_ACTIVE: u64 = 0x0100_1000;

/// Intel's cores by the encoding of their page-walk events. Hybrid processors, and newer cores, are not known.
///
/// Models and codes are from Intel's own lists, github.com/intel/perfmon: models from `mapfile.csv`, codes from the events of SKL,
/// SKX, CLX, ICL, ICX, TGL, RKL, SPR, EMR and GNR, which Linux has in tools/perf/pmu-events/arch/x86 (`virtual-memory.json`,
/// `cache.json`). AMD's cores count walks there (`ls_l1_d_tlb_miss.all_l2_miss`), and no cycles of walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    /// Skylake to Comet Lake.
    Skylake,
    /// Ice Lake, Tiger Lake and Rocket Lake.
    SunnyCove,
    /// The servers from Sapphire Rapids to Granite Rapids.
    GoldenCove,
}

impl Core {
    fn here(root: &Root) -> Option<Self> {
        Self::of(&Cpu::read(root).ok()?)
    }

    fn of(cpu: &Cpu) -> Option<Self> {
        match (cpu.vendor.as_str(), cpu.family?, cpu.model_number?) {
            ("GenuineIntel", 6, 0x4e | 0x5e | 0x55 | 0x8e | 0x9e | 0xa5 | 0xa6) => Some(Core::Skylake),
            ("GenuineIntel", 6, 0x7d | 0x7e | 0x6a | 0x6c | 0x8c | 0x8d | 0xa7) => Some(Core::SunnyCove),
            ("GenuineIntel", 6, 0x8f | 0xcf | 0xad | 0xae) => Some(Core::GoldenCove),
            _ => None,
        }
    }

    /// For loads and for stores.
    fn walk_active(self) -> [u64; 2] {
        match self {
            Core::Skylake | Core::SunnyCove => [0x08, 0x49],
            Core::GoldenCove => [0x12, 0x13],
        }
        .map(|code| WALK_ACTIVE | code)
    }

    /// Whether, in a virtual machine, the cycles of walks include those in the host's tables: "EPT page walk duration are excluded in Skylake", say
    /// the lists.
    fn counts_nested_walks(self) -> bool {
        self != Core::Skylake
    }
}

fn kind(root: &Root, device: &str) -> Result<u32, KernelError> {
    root.number(&format!("{DEVICES}/{device}/type"))
}

fn raw(kind: u32, config: u64) -> Event {
    Event { kind, config, ..Event::default() }
}

/// An event that the device lists.
fn listed(root: &Root, device: &str, name: &str) -> Result<Event, KernelError> {
    let terms = root.parsed(&format!("{DEVICES}/{device}/events/{name}"), Root::LIMIT, parse_terms)?;
    encoded(root, device, &terms)
}

/// Puts each term where the device's format says.
fn encoded(root: &Root, device: &str, terms: &[(String, u64)]) -> Result<Event, KernelError> {
    let mut words = [0; 3];
    for (name, value) in terms {
        let format = format!("{DEVICES}/{device}/format/{name}");
        root.parsed(&format, Root::LIMIT, |text| put(text, *value, &mut words))?;
    }
    let [config, config1, config2] = words;
    Ok(Event { kind: kind(root, device)?, config, config1, config2 })
}

/// Parses `event=0xcd,umask=0x1,ldlat=3`. A term without a value is 1.
fn parse_terms(text: &str) -> Result<Vec<(String, u64)>, Malformed> {
    let malformed = |found| Malformed::new(1, "terms such as 'event=0xcd,umask=0x1'", found);
    let parse = |term: &str| {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        let is_name = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let value = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        value.ok().filter(|_| is_name).map(|value| (name.to_owned(), value))
    };
    let terms: Vec<&str> = text.trim().split(',').collect();
    if terms.len() > MOST_TERMS {
        return Err(malformed(text));
    }
    terms.into_iter().map(|term| parse(term).ok_or_else(|| malformed(term))).collect()
}

/// Stores a value in the bits given by a format such as `config1:0-15` or `config:0-7,32-35`, lowest bits first.
fn put(format: &str, value: u64, words: &mut [u64; 3]) -> Result<(), Malformed> {
    let format = format.trim();
    let malformed = || Malformed::new(1, "bits such as 'config:0-7', enough for the event's value", format);
    let (word, bits) = format.split_once(':').ok_or_else(malformed)?;
    let word = ["config", "config1", "config2"].iter().position(|&name| name == word).ok_or_else(malformed)?;
    let mut left = value;
    for bit in parse_list(bits, 64).ok_or_else(malformed)? {
        words[word] |= (left & 1) << bit;
        left >>= 1;
    }
    if left == 0 { Ok(()) } else { Err(malformed()) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// A machine with these files, below the directory of devices or, if they start with `/`, at the top.
    fn machine(files: &[(&str, &str)]) -> (TempDir, Root) {
        let tree = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = match name.strip_prefix('/') {
                Some(name) => tree.path().join(name),
                None => tree.path().join(DEVICES).join(name),
            };
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(tree.path());
        (tree, root)
    }

    fn cpuinfo(vendor: &str, family: u32, model: u32) -> String {
        format!(
            "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: x\n\
             address sizes\t: 46 bits physical, 48 bits virtual\n"
        )
    }

    const INTEL: [(&str, &str); 5] = [
        ("cpu/type", "4\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("cpu/format/event", "config:0-7\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
    ];
    const MEM_LOADS: Event = Event { kind: 4, config: 0x1cd, config1: 3, config2: 0 };

    fn intel_of_model(model: u32) -> (TempDir, Root) {
        intel_with_flags(model, "")
    }

    fn intel_with_flags(model: u32, flags: &str) -> (TempDir, Root) {
        let text = format!("{}flags\t\t: fpu {flags}\n", cpuinfo("GenuineIntel", 6, model));
        machine(&[&INTEL[..], &[("/proc/cpuinfo", &text)]].concat())
    }

    #[test]
    fn an_unknown_intel_samples_what_the_kernel_lists() {
        let (_tree, root) = machine(&INTEL);
        let expected = MemorySampling { device: "cpu", event: MEM_LOADS, leader: None, precise: 2, only_walks: false };
        assert_eq!(memory_sampling(&root).unwrap(), Some(expected));
        assert_eq!(walk_events(&root).unwrap(), None, "raw codes are for processors in the table only");
    }

    #[test]
    fn a_known_intel_samples_the_walks_themselves() {
        for model in [0x55, 0x6a, 0x8f] {
            let sampling = memory_sampling(&intel_of_model(model).1).unwrap().unwrap();
            assert_eq!((sampling.event, sampling.only_walks), (raw(4, 0x11d0), true), "{model:#x}");
        }
        assert!(!memory_sampling(&intel_of_model(0x9a).1).unwrap().unwrap().only_walks);
    }

    #[test]
    fn two_kinds_of_cores_and_an_auxiliary_event_are_minded() {
        let files: Vec<(String, &str)> =
            INTEL.iter().map(|(name, text)| (name.replace("cpu/", "cpu_core/"), *text)).collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let text = cpuinfo("GenuineIntel", 6, 0x97);
        files.extend([("cpu_core/events/mem-loads-aux", "event=0x03,umask=0x82\n"), ("/proc/cpuinfo", &text)]);
        let (_tree, root) = machine(&files);
        let sampling = memory_sampling(&root).unwrap().unwrap();
        assert_eq!((sampling.device, sampling.event), ("cpu_core", MEM_LOADS));
        assert_eq!(sampling.leader, Some(raw(4, 0x8203)));
        assert_eq!(walk_events(&root).unwrap(), None);
    }

    #[test]
    fn amd_counts_ops_and_no_walk_cycles() {
        let text = cpuinfo("AuthenticAMD", 25, 17);
        let files = [
            ("cpu/type", "4\n"),
            ("ibs_op/type", "11\n"),
            ("ibs_op/format/cnt_ctl", "config:19\n"),
            ("/proc/cpuinfo", &text),
        ];
        let (_tree, root) = machine(&files);
        let sampling = memory_sampling(&root).unwrap().unwrap();
        assert_eq!((sampling.device, sampling.event, sampling.precise), ("ibs_op", raw(11, 1 << 19), 0));
        assert_eq!(walk_events(&root).unwrap(), None);
    }

    #[test]
    fn without_a_pmu_there_is_nothing_and_nothing_fails() {
        let text = cpuinfo("GenuineIntel", 6, 0x8f);
        let (_tree, root) = machine(&[("software/type", "1\n"), ("/proc/cpuinfo", &text)]);
        assert_eq!((memory_sampling(&root).unwrap(), walk_events(&root).unwrap()), (None, None));
        // The kernel lists a PMU but neither kind of sampling: virtual machines with basic counters.
        let (_tree, root) = machine(&[("cpu/type", "4\n"), ("ibs_op/type", "11\n")]);
        assert_eq!(memory_sampling(&root).unwrap(), None);
    }

    #[test]
    fn walk_cycles_have_the_codes_of_their_core() {
        let of = |model| walk_events(&intel_of_model(model).1).unwrap().unwrap();
        for (model, loads, stores) in
            [(0x55, 0x0100_1008, 0x0100_1049), (0x6a, 0x0100_1008, 0x0100_1049), (0xcf, 0x0100_1012, 0x0100_1013)]
        {
            let events = of(model);
            assert_eq!((events.loads, events.stores), (raw(4, loads), raw(4, stores)));
            assert_eq!(events.cycles, raw(4, 0x3c));
        }
    }

    #[test]
    fn cycles_that_leave_out_the_hosts_tables_are_not_taken() {
        let of = |model| walk_events(&intel_with_flags(model, "hypervisor").1).unwrap();
        assert_eq!(of(0x55), None);
        assert!(of(0x6a).is_some() && of(0x8f).is_some());
    }

    #[test]
    fn values_go_where_the_format_says() {
        let mut words = [0; 3];
        put("config:0-7,32-35", 0xabc, &mut words).unwrap();
        put("config2:63", 1, &mut words).unwrap();
        assert_eq!(words, [0xa_0000_00bc, 0, 1 << 63]);
        for format in ["config:0-3", "config3:0-7", "config", "config:60-64", "config:7-0", ""] {
            assert!(put(format, 0x10, &mut [0; 3]).is_err(), "{format}");
        }
    }

    #[test]
    fn strange_terms_name_the_file() {
        let mut files = INTEL;
        files[1].1 = "event=0xcd,../type=1";
        let (_tree, root) = machine(&files);
        let error = memory_sampling(&root).unwrap_err().to_string();
        assert!(error.contains("events/mem-loads") && error.contains("../type=1"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_understood_or_refused(terms in "([a-z.]{0,6}=(0x)?[0-9a-f]{0,20},?){0,20}", format in "(config[0-9]?:)?[0-9,-]{0,12}", value: u64) {
            let _ = parse_terms(&terms);
            let _ = put(&format, value, &mut [0; 3]);
        }
    }
}
