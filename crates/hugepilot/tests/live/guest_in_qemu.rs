//! `promote --guest`: a guest under QEMU, from its host, without KVM unless `HUGEPILOT_GUEST_ACCELERATOR` says `kvm`.
//!
//! Owns: the guest, its console and its monitor; `tests/guest/run` brings its kernel. Never touches: speed, which says nothing without KVM. What it
//! prints are figures of [the results](../../../../docs/results/guests.md); none of them decides a test by its time.

use std::fmt::{self, Display, Formatter};
use std::io::{BufRead, BufReader, Write, read_to_string};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use hugepilot_os::page_scan::any_huge_here;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::schema;
use crate::support::{Ended, binary, huge_bytes_of, hugepilot, number, wait_for, wait_until};

crate::trials!(
    populated_memory_becomes_huge_and_a_balloon_is_not_undone,
    a_balloon_that_inflates_meanwhile_is_not_undone,
    what_qemu_made_huge_is_given_back_and_promoted_again,
    memory_that_is_not_congruent_is_told,
);

const MIB: u64 = 1 << 20;

/// The guest's memory, what it uses and gives up, what a balloon leaves it, and what it then fills and checks: in MiB.
const MEMORY: u64 = 2048;
const BALLAST: u64 = 1792;
const LEFT: u64 = 1536;
const DATA: u64 = 1216;
/// What a balloon leaves it that inflates further while memory is promoted.
const LESS: u64 = 1152;
/// What it checks then, and as much lies free between.
const SCATTERED: u64 = 512;
/// What the guest itself touches for the first time during a promotion, at most, in MiB.
const OWN: u64 = 16;
/// Guests that are booted until a balloon takes memory while it is promoted.
const BALLOONS: usize = 3;
/// Memory as for vhost-user devices; nobody asks for huge pages then.
const SHARED: &str = "memory-backend-file,mem-path=/dev/shm,share=on,align=2M";
/// Answers of the console that are timed before and after a promotion.
const ANSWERS: u64 = 4000;
/// Longer than filling memory takes without KVM, on a machine that is busy with other work.
const SLOW: Duration = Duration::from_secs(300);

/// A guest that runs `tests/guest/init`, ended when dropped.
struct Guest {
    qemu: Ended,
    console: Console,
    monitor: Monitor,
    _folder: TempDir,
}

/// The guest's serial line.
struct Console {
    input: UnixStream,
    lines: Receiver<String>,
}

/// QEMU's monitor (QMP).
struct Monitor {
    stream: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Guest {
    /// Boots with memory of this kind; None, said, where there is no kernel for it.
    fn boot(memory: &str) -> Option<Self> {
        let Some(files) = std::env::var_os("HUGEPILOT_GUEST") else {
            eprintln!("there is no kernel for a guest: `make guest-test` runs this");
            return None;
        };
        let (files, folder) = (Path::new(&files), tempfile::tempdir().expect("a folder"));
        let socket = |name: &str| folder.path().join(name);
        let listens = |name: &str| format!("unix:{},server=on,wait=off", socket(name).display());
        let mut command = Command::new("qemu-system-x86_64");
        let accelerator = std::env::var("HUGEPILOT_GUEST_ACCELERATOR").unwrap_or_else(|_| "tcg".to_owned());
        command.args(["-accel", &accelerator]);
        command.args("-cpu max -smp 1 -nodefaults -display none -no-reboot -device virtio-balloon-pci".split(' '));
        command.args(["-object", &format!("{memory},id=ram,size={MEMORY}M"), "-machine", "pc,memory-backend=ram"]);
        command.args(["-m", &format!("{MEMORY}M"), "-serial", &listens("console"), "-qmp", &listens("monitor")]);
        command.arg("-kernel").arg(files.join("vmlinuz")).arg("-initrd").arg(files.join("initramfs"));
        command.args(["-append", &format!("console=ttyS0 panic=-1 quiet ballast={BALLAST}")]);
        let qemu = Ended(command.stdin(Stdio::null()).spawn().expect("QEMU starts"));
        wait_until("QEMU's sockets", || socket("console").exists() && socket("monitor").exists());
        let console = Console::of(UnixStream::connect(socket("console")).expect("the console"));
        let monitor = Monitor::of(UnixStream::connect(socket("monitor")).expect("the monitor"));
        console.wait_for("used and given up");
        Some(Self { qemu, console, monitor, _folder: folder })
    }

    fn pid(&self) -> u32 {
        self.qemu.0.id()
    }

    /// Takes memory out of the guest until it has as much as this.
    fn inflate_balloon(&mut self, left: u64) {
        self.begin_to_inflate(left);
        self.wait_for_balloon(left);
    }

    fn begin_to_inflate(&mut self, left: u64) {
        self.monitor.ask(&json!({ "execute": "balloon", "arguments": { "value": left * MIB } }));
    }

    fn wait_for_balloon(&mut self, left: u64) {
        wait_for("the balloon", SLOW, || self.has() == left * MIB);
    }

    /// Its memory as a dry run shows it.
    fn memory(&self) -> Value {
        hugepilot(&format!("promote --guest {} --dry-run --json", self.pid())).json()["guest"].take()
    }

    /// Promotes it and has its console answer meanwhile; `meanwhile` is called after each answer.
    fn promote(&mut self, mut meanwhile: impl FnMut(&mut Self, &Answers)) -> (Value, Answers) {
        let mut command = Command::new(binary());
        command.args(["promote", "--guest", "--json", &self.pid().to_string()]).stdout(Stdio::piped());
        let mut promoting = Ended(command.spawn().expect("hugepilot starts"));
        let mut answers = Answers::default();
        while promoting.0.try_wait().expect("a child can be asked").is_none() {
            self.console.answer(&mut answers);
            meanwhile(self, &answers);
        }
        let printed = read_to_string(promoting.0.stdout.take().expect("piped")).expect("UTF-8");
        let promotion: Value = serde_json::from_str(&printed).expect("JSON");
        schema::check(&promotion);
        (promotion, answers)
    }

    /// What the balloon leaves it.
    fn has(&mut self) -> u64 {
        number(&self.monitor.ask(&json!({ "execute": "query-balloon" })), "actual")
    }

    /// Fills memory, and returns when it is known to be intact once.
    fn fill(&mut self, size: u64) {
        self.console.say(&format!("fill {size}"));
        self.console.wait_for("intact");
    }
}

impl Console {
    fn of(stream: UnixStream) -> Self {
        let (sender, lines) = channel();
        let reader = BufReader::new(stream.try_clone().expect("a second handle"));
        std::thread::spawn(move || reader.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { input: stream, lines }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the guest runs");
    }

    /// Waits for a line that contains this. Panics if data was lost.
    fn wait_for(&self, expected: &str) {
        loop {
            let line = self.lines.recv_timeout(SLOW).unwrap_or_else(|_| panic!("waited in vain for '{expected}'"));
            assert!(!line.contains("corrupted"), "the guest lost data");
            if line.contains(expected) {
                return;
            }
        }
    }

    /// Has the shell in the guest answer, and notes how long that took.
    fn answer(&mut self, answers: &mut Answers) {
        let (asked, number) = (Instant::now(), answers.0.len());
        self.say(&format!("question-{number}"));
        self.wait_for(&format!("answer question-{number}"));
        answers.0.push(asked.elapsed());
    }

    /// The same many times.
    fn answers(&mut self) -> Answers {
        let mut answers = Answers::default();
        (0..ANSWERS).for_each(|_| self.answer(&mut answers));
        answers
    }

    /// Waits until data was found intact that was read from its beginning after this.
    fn assert_intact(&self) {
        // A line from before, and the round under way.
        while self.lines.try_recv().is_ok() {}
        self.wait_for("intact");
        self.wait_for("intact");
    }
}

/// How long the shell in the guest took to answer, each time.
#[derive(Default)]
struct Answers(Vec<Duration>);

impl Display for Answers {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let mut milliseconds: Vec<f64> = self.0.iter().map(|each| 1e3 * each.as_secs_f64()).collect();
        milliseconds.sort_by(f64::total_cmp);
        let [median, longest] = [milliseconds.len() / 2, milliseconds.len() - 1].map(|index| milliseconds[index]);
        write!(to, "median {median:.0} ms, longest {longest:.0} ms, {} answers", milliseconds.len())
    }
}

impl Monitor {
    fn of(stream: UnixStream) -> Self {
        let answers = BufReader::new(stream.try_clone().expect("a second handle"));
        let mut monitor = Self { stream, answers };
        monitor.next("QMP");
        monitor.ask(&json!({ "execute": "qmp_capabilities" }));
        monitor
    }

    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.stream, "{command}").expect("QEMU runs");
        self.next("return")
    }

    /// The value of this key in the next message that has it; others are events.
    fn next(&mut self, key: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).expect("QEMU runs") > 0, "QEMU has ended");
            let mut message: Value = serde_json::from_str(&line).expect("JSON");
            assert!(message.get("error").is_none(), "{message}");
            if let Some(value) = message.get_mut(key) {
                return value.take();
            }
        }
    }
}

/// Asserts that nearly all of what is populated is huge, that no more became populated than growth allows, and that data is intact.
fn assert_promoted(promotion: &Value) {
    let of = |when: &str, what: &str| number(&promotion["guest"][when], what);
    let (populated, huge) = (of("after", "populated_bytes"), of("after", "huge_bytes"));
    assert!(huge as f64 >= 0.95 * populated as f64, "{huge} of {populated}: {promotion}");
    assert!(number(promotion, "applied") > 0, "{promotion}");
    let (before, allowed) = (of("before", "populated_bytes"), number(promotion, "rss_before_bytes") / 100);
    assert!(populated <= before + allowed + OWN * MIB, "{before} to {populated}, {allowed} allowed");
}

/// Regions that were left alone because their memory changed after the plan.
fn changed(promotion: &Value) -> usize {
    let refused = promotion["refused"].as_array().expect("a list");
    refused.iter().filter(|refusal| refusal["reason"] == "changed").count()
}

/// Prints a promotion's figures.
fn show(promotion: &Value) {
    let of = |when: &str, what: &str| number(&promotion["guest"][when], what) as f64 / MIB as f64;
    let (before, populated, huge) =
        (of("before", "populated_bytes"), of("after", "populated_bytes"), of("after", "huge_bytes"));
    println!("populated before promoting: {before:.1} MiB");
    println!("populated after promoting: {populated:.1} MiB");
    println!("of that on huge pages: {:.1} %", 100.0 * huge / populated);
    let allowed = number(promotion, "rss_before_bytes") as f64 / 100.0 / MIB as f64;
    println!("growth, and its limit: {:.1} MiB of {allowed:.1} MiB", populated - before);
    println!("time of the whole command: {:.0} s", promotion["seconds"].as_f64().expect("a number"));
}

fn populated_memory_becomes_huge_and_a_balloon_is_not_undone() {
    let Some(mut guest) = Guest::boot(SHARED) else { return };
    guest.inflate_balloon(LEFT);
    guest.fill(DATA);
    let (pid, memory) = (guest.pid(), guest.memory());
    assert_eq!(memory["blocks"].as_array().expect("a list").len(), 1, "{memory}");
    assert!(memory["blocks"][0]["name"].as_str().expect("a name").starts_with("/dev/shm/qemu_back_mem"), "{memory}");
    assert_eq!(number(&memory["blocks"][0], "incongruent_by_bytes"), 0, "{memory}");
    assert!(number(&memory, "populated_bytes") <= LEFT * MIB, "the balloon left holes: {memory}");
    assert_eq!(number(&memory, "huge_bytes"), 0, "{memory}");
    let explained = hugepilot(&format!("explain {pid} --window 200ms")).stdout;
    assert!(explained.contains(&format!("`hugepilot promote --guest {pid}`")), "{explained}");

    let before = guest.console.answers();
    let (promotion, meanwhile) = guest.promote(|_, _| ());
    let after = guest.console.answers();
    assert_promoted(&promotion);
    assert_eq!(guest.has(), LEFT * MIB, "the balloon is as it was");
    assert!(number(&promotion["guest"]["after"], "populated_bytes") <= (LEFT + OWN) * MIB, "{promotion}");
    guest.console.assert_intact();
    show(&promotion);
    println!("checksums: intact before, meanwhile and afterwards");
    println!("console before promoting: {before}");
    println!("console meanwhile: {meanwhile}");
    println!("console afterwards: {after}");

    let back = hugepilot(&format!("give-back {pid} --json")).json();
    assert_eq!(number(&back, "tried"), number(&promotion, "applied"), "{back}");
    // The kernel splits no page that something holds just then; give-back tells of it.
    assert!(number(&back, "applied") as f64 >= 0.99 * number(&back, "tried") as f64, "{back}");
    guest.console.assert_intact();
}

fn a_balloon_that_inflates_meanwhile_is_not_undone() {
    if let Err(error) = any_huge_here(0, 4096) {
        return eprintln!("skipped: the kernel does not count a region's pages just before its collapse: {error}");
    }
    for _ in 0..BALLOONS {
        let Some(guest) = Guest::boot(SHARED) else { return };
        match inflate_meanwhile(guest) {
            Inflated::Meanwhile => return,
            Inflated::TooLate => eprintln!("the balloon came too late"),
        }
    }
    eprintln!("not tested: {BALLOONS} balloons came too late for a region to change");
}

/// When a balloon took memory that was to be promoted.
enum Inflated {
    /// After the plan, and before the collapse of at least one region.
    Meanwhile,
    TooLate,
}

/// Inflates a balloon while memory is promoted, and asserts that it is not undone.
fn inflate_meanwhile(mut guest: Guest) -> Inflated {
    guest.inflate_balloon(LEFT);
    guest.console.say(&format!("scatter {SCATTERED}"));
    guest.console.wait_for("intact");
    let (huge_before, mut begun) = (huge_bytes_of(guest.pid()), false);
    let (promotion, _) = guest.promote(|guest, _| {
        if !begun && huge_bytes_of(guest.pid()) > huge_before + 16 * MIB {
            guest.begin_to_inflate(LESS);
            begun = true;
        }
    });
    if !begun {
        return Inflated::TooLate;
    }
    let meanwhile = LEFT - guest.has() / MIB;
    guest.wait_for_balloon(LESS);
    guest.console.assert_intact();
    let (before, after) = (number(&promotion["guest"]["before"], "populated_bytes"), guest.memory());
    let after = number(&after, "populated_bytes");
    println!("balloon: it took {} MiB, {meanwhile} MiB of it before promoting ended", LEFT - LESS);
    println!("balloon: populated before it inflated: {} MiB of {LEFT} MiB that the guest has", before / MIB);
    println!("balloon: populated when it had inflated: {} MiB of {LESS} MiB that the guest has", after / MIB);
    println!("balloon: regions left alone because they had changed: {}", changed(&promotion));
    let allowed = number(&promotion, "rss_before_bytes") / 100;
    // The kernel's allocator takes small pieces first: so what the balloon took had been touched.
    assert!(after + (LEFT - LESS) * MIB <= before + allowed + OWN * MIB, "{before} to {after}: {promotion}");
    if meanwhile > 0 && changed(&promotion) > 0 { Inflated::Meanwhile } else { Inflated::TooLate }
}

fn memory_that_is_not_congruent_is_told() {
    // Nothing makes QEMU align this kind.
    let Some(guest) = Guest::boot("memory-backend-memfd,share=on") else { return };
    let pid = guest.pid();
    let plan = hugepilot(&format!("promote --guest {pid} --dry-run --json")).json();
    let block = &plan["guest"]["blocks"][0];
    if number(block, "incongruent_by_bytes") == 0 {
        return eprintln!("it is aligned by chance, or by this QEMU: not tested");
    }
    assert_eq!(block["obstacle"], "misaligned", "{block}");
    let text = hugepilot(&format!("promote --guest {pid} --dry-run")).stdout;
    assert!(text.contains("would promote 0 of") && text.contains("align=2M"), "{text}");
}

fn what_qemu_made_huge_is_given_back_and_promoted_again() {
    let Some(mut guest) = Guest::boot("memory-backend-ram") else { return };
    guest.fill(DATA);
    let pid = guest.pid();
    hugepilot(&format!("give-back {pid} --all --json")).json();
    let promotion = hugepilot(&format!("promote --guest {pid} --fast --json")).json();
    assert_promoted(&promotion);
    guest.console.assert_intact();
}
