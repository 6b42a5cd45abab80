//! Bad input and bad luck: a clear error (what, where, why, next step), status 1, and no changes left behind.
//!
//! run.rs has the errors of `run`; promote.rs has processes that end, and signals, during an action. A lack of contiguous memory is tested with the
//! daemon, on a virtual machine of the tests' own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use kernel::Root;
use kernel::process::{ProcessStatus, threads};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{
    Cgroup, Ended, Program, Ran, binary, hugepilot, list, number, public_copy, send, shell, wait_until,
};

crate::trials!(
    no_such_process,
    a_kernel_thread,
    a_thread_in_place_of_its_process,
    hugepilot_itself,
    a_zombie,
    a_process_that_is_not_visible_here,
    a_32_bit_program,
    a_virtual_machine,
    each_missing_capability_is_named,
    another_user_without_rights,
    no_btf,
    bpf_is_refused,
    huge_pages_switched_off_by_the_process,
    a_full_memory_cgroup,
    a_process_that_ends_while_it_is_watched,
    a_process_that_execs_while_it_is_watched,
    signals_while_watching,
    standard_output_is_closed,
    standard_output_is_a_pipe_that_nobody_reads,
    standard_output_is_full,
);

const COMMANDS: [&str; 3] = ["heat", "promote", "give-back"];

/// Asserts that every command refuses the process with a message that contains these words.
fn assert_refused(pid: u32, words: &[&str]) {
    for command in COMMANDS {
        hugepilot(&format!("{command} {pid}")).assert_fails_with(words);
    }
}

fn pid_and_words<'a>(pid: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&[pid], words].concat()
}

fn no_such_process() {
    let mut child = Command::new("true").spawn().expect("a child");
    child.wait().expect("it ends");
    assert_refused(child.id(), &pid_and_words(&child.id().to_string(), &["no process", "ended", "pid namespace"]));
    assert_refused(u32::MAX, &["no process 4294967295"]);
}

fn a_kernel_thread() {
    let is_kernel_thread =
        |pid: &u32| ProcessStatus::read(&Root::host(), *pid).is_ok_and(|status| status.kernel_thread);
    match Root::host().numbered_entries("proc").expect("/proc").into_iter().find(is_kernel_thread) {
        Some(pid) => assert_refused(pid, &[&pid.to_string(), "kernel thread"]),
        None => eprintln!("no kernel thread is visible here (a container): not tested"),
    }
}

fn a_thread_in_place_of_its_process() {
    let program = Program::start("thread map=4M fill ready read=all");
    let threads = || threads(&Root::host(), program.pid).expect("it lives");
    wait_until("a second thread", || threads().len() == 2);
    assert_refused(threads()[1], &["is a thread of process", &format!("use {}", program.pid)]);
}

fn hugepilot_itself() {
    for command in COMMANDS {
        shell(&format!("exec $HUGEPILOT {command} $$")).assert_fails_with(&["is hugepilot itself"]);
    }
}

fn a_zombie() {
    let mut child = Command::new("true").spawn().expect("a child");
    wait_until("a zombie", || ProcessStatus::read(&Root::host(), child.id()).is_ok_and(|status| status.is_zombie()));
    assert_refused(child.id(), &[&child.id().to_string(), "zombie"]);
    child.wait().expect("it has ended");
}

fn a_process_that_is_not_visible_here() {
    let program = Program::start("map=4M fill ready read=all");
    for command in COMMANDS {
        let script = format!("unshare --pid --fork --mount-proc $HUGEPILOT {command} {}", program.pid);
        shell(&script).assert_fails_with(&["no process", "pid namespace", "host"]);
    }
}

/// The smallest 32-bit ELF program: it sleeps forever (man 5 elf; `pause` is system call 29).
fn tiny_32_bit_program() -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let halves = |halves: &[u16]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let (base, code_at): (u32, u32) = (0x0804_8000, 52 + 32);
    // mov eax, 29; int 0x80; jmp to the start
    let code = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    let size = code_at + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(halves(&[2, 3])); // an executable, for the 80386
    file.extend(words(&[1, base + code_at, 52, 0, 0])); // entry point, program headers at 52
    file.extend(halves(&[52, 32, 1, 40, 0, 0])); // one of 32 bytes
    file.extend(words(&[1, 0, base, base, size, size, 5, 4096])); // load it all, readable and executable
    file.extend(code);
    file
}

fn executable(path: &Path, contents: &[u8]) {
    fs::write(path, contents).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

fn a_32_bit_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny");
    executable(&path, &tiny_32_bit_program());
    match Command::new(&path).spawn() {
        Ok(child) => {
            let child = Ended(child);
            let name = || ProcessStatus::read(&Root::host(), child.0.id()).expect("it lives").name;
            wait_until("its name", || name() == "tiny");
            assert_refused(child.0.id(), &["tiny", "32-bit program"]);
        }
        Err(error) => {
            eprintln!("this kernel runs no 32-bit programs ({error}): only the unit test of the ELF class has it")
        }
    }
}

fn a_virtual_machine() {
    let Some(program) = Program::try_start("kvm map=4M fill ready read=all") else {
        return eprintln!("no virtual machine can be made here: only the unit test of `holds_kvm` has it");
    };
    // It may be given back what was promoted.
    for command in ["heat", "promote", "trial"] {
        let words = ["virtual machine (KVM)", "inside the guest", "--guest"];
        hugepilot(&format!("{command} {}", program.pid)).assert_fails_with(&words);
    }
}

fn each_missing_capability_is_named() {
    let program = Program::start("map=4M fill ready read=all");
    let without = |capabilities: &str, words: &str| {
        let dropped: Vec<String> = capabilities.split(' ').map(|name| format!("-{}", name.to_lowercase())).collect();
        let script = format!(
            "setpriv --bounding-set {0} --inh-caps {0} $HUGEPILOT {words}",
            dropped.join(",").replace("cap_", "")
        );
        shell(&script)
    };
    let pid = program.pid;
    for command in COMMANDS {
        for capability in ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_SYS_PTRACE"] {
            without(capability, &format!("{command} {pid}")).assert_fails_with(&[capability, "root"]);
        }
        let all = without("CAP_SYS_ADMIN CAP_BPF CAP_PERFMON", &format!("{command} {pid}"));
        all.assert_fails_with(&["missing CAP_SYS_ADMIN: ", "hugepilot doctor"]);
    }
    let page_walk = without("CAP_SYS_ADMIN CAP_BPF CAP_PERFMON", &format!("heat {pid} --tracker page-walk"));
    page_walk.assert_fails_with(&["CAP_SYS_ADMIN, CAP_BPF, CAP_PERFMON"]);
    for command in [format!("promote {pid}"), format!("give-back {pid}"), "run -- echo started".to_owned()] {
        let ran = without("CAP_SYS_NICE", &command);
        ran.assert_fails_with(&["missing CAP_SYS_NICE: "]);
        assert_eq!(ran.stdout, "");
    }
    assert!(without("CAP_SYS_NICE", &format!("heat {pid}")).status.success(), "observing needs no CAP_SYS_NICE");
}

fn another_user_without_rights() {
    let program = Program::start("map=4M fill ready read=all");
    let folder = tempfile::tempdir().expect("a folder");
    let path = public_copy(&folder, binary());
    let as_nobody = |command: &str, pid: u32| {
        shell(&format!("cd / && setpriv --reuid 65534 --regid 65534 --clear-groups {} {command} {pid}", path.display()))
    };
    for command in COMMANDS {
        as_nobody(command, program.pid).assert_fails_with(&["root"]);
    }
    for command in ["heat", "explain", "promote", "trial", "give-back", "attach"] {
        as_nobody(command, u32::MAX).assert_fails_with(&["no process 4294967295"]);
    }
}

/// Runs each command on a healthy program in a broken environment, and asserts that nothing was changed. It asks for page-walk, because `auto` would
/// take another tracker where one works, DAMON for instance, which is only for the virtual machine.
fn in_surroundings(surroundings: &str, words: &[&str]) {
    let program = Program::start("map=16M fill ready read=all");
    for command in ["heat", "promote"] {
        let script = format!("{surroundings} $HUGEPILOT {command} {} --tracker page-walk'", program.pid);
        shell(&script).assert_fails_with(words);
    }
    assert_eq!(program.huge_bytes(), 0);
}

fn no_btf() {
    in_surroundings("unshare --mount sh -c 'mount -t tmpfs none /sys/kernel/btf && exec", &["BTF", "hugepilot doctor"]);
}

fn bpf_is_refused() {
    // In a new user namespace the process has all capabilities, but none of them counts for BPF.
    in_surroundings("unshare --user --map-root-user sh -c 'exec", &["CAP_"]);
}

fn huge_pages_switched_off_by_the_process() {
    let program = Program::start("thp-disable map=16M fill ready read=all");
    let ran = hugepilot(&format!("promote {}", program.pid));
    ran.assert_fails_with(&["PR_SET_THP_DISABLE", "Restart it without that"]);
    assert!(hugepilot(&format!("heat {} --window 200ms", program.pid)).status.success(), "observing is still possible");
}

fn a_full_memory_cgroup() {
    let Some(group) = Cgroup::new() else {
        return eprintln!("no group of the memory controller can be made here: not tested");
    };
    let mut program = Program::start(&format!("join-cgroup={} map=64M fill ready read=all", group.path.display()));
    group.limit_to(1 << 20);
    let ran = hugepilot(&format!("promote {} --window 300ms --json", program.pid));
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let refused = list(&json, "refused");
    let covered = json["reasons"]["covered"].as_u64().unwrap_or(0);
    assert!(!refused.is_empty() && refused.len() as u64 + covered >= 20 && number(&json, "applied") == 0, "{json}");
    assert!(refused.iter().all(|refusal| refusal["reason"] == "cgroup_full_or_pinned"), "{json}");
    let text = hugepilot(&format!("promote {} --window 300ms", program.pid));
    assert!(text.stdout.contains("memory cgroup is full") && text.stdout.contains("raise the cgroup's memory limit"));
    assert!(text.stderr.contains("refused all") && text.stderr.contains("nothing was changed"), "{text:?}");
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

/// Starts hugepilot observing, and waits until it does.
fn watching(command: &str, program: &Program, window: &str) -> std::process::Child {
    let mut hugepilot = Command::new(binary());
    hugepilot.args([command, &program.pid.to_string(), "--window", window]);
    let child = hugepilot.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hugepilot starts");
    // This is the last file that it opens before it observes; the rest takes milliseconds, so a second is plenty.
    let opened = || {
        let fds = fs::read_dir(format!("/proc/{}/fd", child.id())).expect("it lives");
        let link = |fd: std::io::Result<fs::DirEntry>| fs::read_link(fd.ok()?.path()).ok();
        fds.filter_map(link).any(|link| link.as_os_str() == "/proc/kpagecount")
    };
    wait_until("hugepilot watching", opened);
    std::thread::sleep(std::time::Duration::from_secs(1));
    child
}

fn ended(child: std::process::Child) -> Ran {
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Ran { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// hugepilot's output after its target did something during the observation.
fn after_event(command: &str, steps: &str) -> (Ran, Program) {
    let folder = tempfile::tempdir().expect("a folder");
    let go = folder.path().join("go");
    let program = Program::start(&format!("map=16M fill ready await={} {steps}", go.display()));
    let child = watching(command, &program, "3s");
    fs::write(go, "").expect("a file");
    (ended(child), program)
}

fn a_process_that_ends_while_it_is_watched() {
    for command in ["heat", "promote"] {
        let (ran, mut program) = after_event(command, "exit=5");
        ran.assert_fails_with(&[&program.pid.to_string()]);
        // Which step notices it is a matter of luck.
        assert!(ran.stderr.contains("exited") || ran.stderr.contains("has ended"), "{ran:?}");
        assert_eq!(program.wait().code(), Some(5));
    }
}

fn a_process_that_execs_while_it_is_watched() {
    for command in ["heat", "promote"] {
        let (ran, mut program) = after_event(command, "exec map=64M fill read=all");
        ran.assert_fails_with(&[&program.pid.to_string(), "exec", "again"]);
        program.assert_unharmed();
        assert_eq!(program.huge_bytes(), 0);
    }
}

fn signals_while_watching() {
    let mut program = Program::start("map=64M fill ready read=all");
    for command in ["heat", "promote"] {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let child = watching(command, &program, "60s");
            send(child.id(), signal);
            ended(child).assert_fails_with(&["stopped by a signal", "nothing was changed"]);
        }
    }
    assert_eq!(program.huge_bytes(), 0);
    program.assert_unharmed();
}

fn standard_output_is_closed() {
    let program = Program::start("map=16M fill ready read=all");
    for options in ["", "--json"] {
        let ran = shell(&format!("exec $HUGEPILOT promote {} --window 200ms {options} >&-", program.pid));
        ran.assert_fails_with(&["standard output is closed", "nothing was changed"]);
        assert_eq!(program.huge_bytes(), 0);
    }
    let heat = shell(&format!("exec $HUGEPILOT heat {} --window 200ms >&-", program.pid));
    heat.assert_fails_with(&["standard output is closed"]);
    shell("exec $HUGEPILOT doctor >&-").assert_fails_with(&["standard output is closed"]);
}

fn standard_output_is_a_pipe_that_nobody_reads() {
    let program = Program::start("map=16M fill ready read=all");
    for command in ["heat", "promote"] {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        drop(reader);
        let mut hugepilot = Command::new(binary());
        hugepilot.args([command, &program.pid.to_string(), "--window", "200ms"]).stdout(writer);
        let output = hugepilot.stderr(Stdio::piped()).spawn().expect("it starts");
        ended(output).assert_fails_with(&["standard output"]);
    }
    assert_eq!(program.huge_bytes(), 0);
}

fn standard_output_is_full() {
    let program = Program::start("map=4M fill ready read=all");
    shell(&format!("$HUGEPILOT heat {} --window 200ms > /dev/full", program.pid))
        .assert_fails_with(&["cannot write the report", "No space left"]);
}
