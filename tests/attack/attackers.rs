//! What a user without rights may try against the daemon. Each goes on until it is killed.
//!
//! Owns: the attacks. Never touches: other users' processes, except by asking the daemon to.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use hps::wire::{Head, Notice, Track, usual_signal};
use hugepilot_os::advise::advise;
use hugepilot_os::memory::AlignedMemory;
use hugepilot_os::socket::receive_with;
use hugepilot_os::{Advice, PidFd};
use rustix::fs::{MemfdFlags, memfd_create};

/// A directory beside the attacker in which it may write.
pub const WRITABLE: &str = "writable";
/// Written to standard output by an attack that got what it must not get.
pub const GAINED: &str = "gained";
/// Written by an attack that needs some time until it harms, once it does.
pub const HARMS: &str = "harms now";
/// A program beside the attacker that runs with root's rights, whoever starts it.
pub const SET_UID: &str = "set-uid";
/// The same with the rights of root's group only.
pub const SET_GID: &str = "set-gid";

const STATUS: &[u8] = b"{\"version\":1,\"command\":\"status\"}\n";
const REGION: usize = 2 << 20;
const PAGE: usize = 4096;
const TERABYTE: usize = 1 << 40;
/// From one touched page to the next: whole regions.
const SPREAD: usize = TERABYTE / 3000 / REGION * REGION;
const SOON: Duration = Duration::from_millis(100);

/// One way to attack.
pub struct Attack {
    /// Its name, as the test reports it.
    pub name: &'static str,
    /// What it does, with the socket and the process id of a target of another user.
    go: fn(&str, u32) -> io::Result<()>,
    /// How many processes do it at once.
    pub times: usize,
    /// Whether it says when it [`HARMS`].
    pub prepares: bool,
}

impl Attack {
    const fn preparing(self) -> Self {
        Self { prepares: true, ..self }
    }
}

const fn attack(name: &'static str, times: usize, go: fn(&str, u32) -> io::Result<()>) -> Attack {
    Attack { name, go, times, prepares: false }
}

/// All of them.
pub const ATTACKS: &[Attack] = &[
    attack("opens connections and holds them", 2, hold_connections),
    attack("asks for the status over and over", 2, ask_for_status),
    attack("asks for the status and never reads it", 2, leave_unread),
    attack("sends half a request", 2, send_halves),
    attack("sends bytes that are no request", 2, send_garbage),
    attack("is tracked and leaves, over and over", 2, track_and_leave),
    attack("maps one huge page 700 times and wants a list ten times a second", 32, alias_one_page),
    attack("is tracked and ends, while a child keeps the connection", 1, leave_connections_to_children),
    attack("is tracked and becomes a program with more rights", 1, exec_with_more_rights).preparing(),
    attack("has a child ask about a program with the rights of another group", 1, ask_about_another_group).preparing(),
    attack("has a list waiting and stops itself", 8, stop_itself).preparing(),
    attack("touches a page in each of 3,000 regions, spread over a terabyte", 1, spread_over_a_terabyte),
    attack("maps 64 MiB on huge pages 8,000 times", 1, alias_huge_pages).preparing(),
    attack("maps a file with a long name 16,000 times", 1, map_a_long_name).preparing(),
    attack("sends notices without end", 2, flood_with_notices),
    attack("steers targets of others", 1, steer_others),
    attack("starts and ends processes", 2, start_processes),
];

/// Performs one, by its number.
pub fn play(mut words: impl Iterator<Item = String>) -> ExitCode {
    let mut next = || words.next().expect("a number, a socket and a process id");
    let (number, socket, target): (usize, _, _) = (next().parse().expect("a number"), next(), next());
    let target = target.parse().expect("a process id");
    loop {
        // The daemon refuses and disconnects: the attack goes on.
        if (ATTACKS[number].go)(&socket, target).is_err() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn hold_connections(socket: &str, _: u32) -> io::Result<()> {
    let mut held = Vec::new();
    while held.len() < 500 {
        held.push(UnixStream::connect(socket)?);
    }
    thread::sleep(SOON);
    Ok(())
}

fn ask_for_status(socket: &str, _: u32) -> io::Result<()> {
    ask(socket, STATUS).map(drop)
}

fn ask(socket: &str, request: &[u8]) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(request)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

fn leave_unread(socket: &str, _: u32) -> io::Result<()> {
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(STATUS)?;
        held.push(stream);
    }
    thread::sleep(SOON);
    Ok(())
}

fn send_halves(socket: &str, _: u32) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(&STATUS[..STATUS.len() / 2])?;
        streams.push(stream);
    }
    for byte in b" ".repeat(50) {
        streams.iter_mut().try_for_each(|stream| stream.write_all(&[byte]))?;
        thread::sleep(SOON / 10);
    }
    Ok(())
}

fn send_garbage(socket: &str, _: u32) -> io::Result<()> {
    let mut bytes = [0; 8 << 10];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    UnixStream::connect(socket)?.write_all(&bytes)
}

/// A tracked process: its connection, and the file of its lists.
fn track(socket: &str) -> io::Result<(UnixStream, File)> {
    let stream = UnixStream::connect(socket)?;
    let list = request_tracking(&stream)?;
    Ok((stream, list))
}

/// The file of lists of the process that connected.
fn request_tracking(mut stream: &UnixStream) -> io::Result<File> {
    let track = Track {
        signal: usual_signal(),
        thread: None,
        threshold_pages: 1,
        interval_ms: hps::wire::SHORTEST_INTERVAL_MS,
        ranges: Vec::new(),
    };
    // Without a handler there is no signal.
    let _ = signal_hook::flag::register(track.signal, std::sync::Arc::default());
    stream.write_all(&track.line())?;
    let (_, list): (usize, Option<OwnedFd>) = receive_with(stream, &mut [0; 4096])?;
    Ok(File::from(list.ok_or(io::ErrorKind::ConnectionRefused)?))
}

fn head_of(list: &File) -> Option<Head> {
    let mut bytes = [0; Head::LEN];
    list.read_exact_at(&mut bytes, 0).ok()?;
    Head::parse(&bytes).ok()
}

fn track_and_leave(socket: &str, _: u32) -> io::Result<()> {
    track(socket).map(drop)
}

fn alias_one_page(socket: &str, _: u32) -> io::Result<()> {
    let memory = AlignedMemory::aliased(REGION, 700)?;
    let (mut stream, list) = track(socket)?;
    loop {
        touch(&memory, 4096);
        if let Some(head) = head_of(&list) {
            stream.write_all(&Notice::Taken(head.sequence).line())?;
        }
        thread::sleep(SOON);
    }
}

fn touch(memory: &AlignedMemory, step: usize) {
    memory.bytes().iter().step_by(step).for_each(|byte| _ = std::hint::black_box(*byte));
}

/// A child that inherits the connection, ended with this process group.
fn child_that_keeps(stream: &UnixStream) -> io::Result<Child> {
    rustix::io::fcntl_setfd(stream, rustix::io::FdFlags::empty())?;
    Command::new("sleep").arg("60").spawn()
}

fn leave_connections_to_children(socket: &str, _: u32) -> io::Result<()> {
    let Some(part) = std::env::var_os("HUGEPILOT_ATTACK_PART") else {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut leaver =
            Command::new(std::env::current_exe()?).args(words).env("HUGEPILOT_ATTACK_PART", "1").spawn()?;
        leaver.wait()?;
        return Ok(());
    };
    drop(part);
    if let Ok((stream, _)) = track(socket) {
        child_that_keeps(&stream)?;
    }
    std::process::exit(0);
}

fn exec_with_more_rights(socket: &str, _: u32) -> io::Result<()> {
    let watcher = std::env::var_os("HUGEPILOT_ATTACK_PART").is_none();
    if watcher {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut command = Command::new(std::env::current_exe()?);
        // It reads its memory until the spy ends it, or its input, which `wait` would close.
        let mut child = command.args(words).env("HUGEPILOT_ATTACK_PART", "1").stdin(Stdio::piped()).spawn()?;
        let _input = child.stdin.take();
        child.wait()?;
        return Ok(());
    }
    let (mut stream, list) = track(socket)?;
    let sequence = use_memory_until_listed(&list)?;
    stream.write_all(&Notice::Taken(sequence).line())?;
    let own = std::env::current_exe()?;
    watch_list(Command::new(&own), &list, &stream)?;
    let mut set_uid = Command::new(own.with_file_name(SET_UID));
    Err(set_uid.args(["program", "map=8M", "fill", "nohugepage", "ready", "read=all"]).exec())
}

/// Its parent connects, and becomes a program with the rights of another group before the child asks about it.
fn ask_about_another_group(socket: &str, _: u32) -> io::Result<()> {
    let part = std::env::var("HUGEPILOT_ATTACK_PART").unwrap_or_default();
    let play_again = |part: &str| {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(std::env::args().skip(1)).env("HUGEPILOT_ATTACK_PART", part);
        Ok::<Command, io::Error>(command)
    };
    match part.as_str() {
        "" => {
            // It reads its memory until its input closes, which `wait` would do.
            let mut child = play_again("connect")?.stdin(Stdio::piped()).spawn()?;
            let _input = child.stdin.take();
            child.wait().map(drop)
        }
        "connect" => {
            let stream = UnixStream::connect(socket)?;
            play_again(&std::process::id().to_string())?.stdin(Stdio::from(OwnedFd::from(stream))).spawn()?;
            let set_gid = std::env::current_exe()?.with_file_name(SET_GID);
            Err(Command::new(set_gid).args(["program", "map=8M", "fill", "nohugepage", "ready", "read=all"]).exec())
        }
        parent => {
            ask_for_list_of(parent.parse().expect("a process id"));
            std::process::exit(0)
        }
    }
}

/// Asks on standard input, a connection of that process, for lists of it once it runs the set-group-id program; says if it gets them, and ends it.
fn ask_for_list_of(parent: i32) {
    let stream = UnixStream::from(rustix::io::dup(io::stdin()).expect("the connection"));
    while !runs(parent, SET_GID) {
        thread::sleep(SOON / 100);
    }
    if request_tracking(&stream).is_ok() {
        println!("{GAINED}: lists of a program of another group");
    }
    println!("{HARMS}");
    let parent = rustix::process::Pid::from_raw(parent).expect("not 0");
    rustix::process::kill_process(parent, rustix::process::Signal::KILL).expect("its user is ours");
}

/// Whether a process runs a program of that name.
fn runs(pid: i32, name: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// Starts a process that holds the connection and the list, and says if a list comes after its parent has become another program.
fn watch_list(mut spy: Command, list: &File, stream: &UnixStream) -> io::Result<()> {
    rustix::io::fcntl_setfd(stream, rustix::io::FdFlags::empty())?;
    spy.args(["attack", "spy"])
        .stdin(Stdio::from(list.try_clone()?))
        .env("HUGEPILOT_ATTACK_PARENT", std::process::id().to_string());
    spy.spawn().map(drop)
}

/// Says if a list is written for a process that runs the set-uid program now, and ends it some seconds later.
pub fn spy() -> ExitCode {
    let list = File::from(rustix::io::dup(io::stdin()).expect("the list"));
    let parent: i32 = std::env::var("HUGEPILOT_ATTACK_PARENT").expect("set").parse().expect("a process id");
    let has_rights = || runs(parent, SET_UID);
    let sequence = || head_of(&list).map(|head| head.sequence);
    while !has_rights() {
        thread::sleep(SOON / 100);
    }
    let before = sequence();
    thread::sleep(30 * SOON);
    if has_rights() {
        println!("{HARMS}");
        // A list that is withdrawn has no number.
        if sequence() > before {
            println!("{GAINED}: a list of another program");
        }
    }
    let parent = rustix::process::Pid::from_raw(parent).expect("not 0");
    rustix::process::kill_process(parent, rustix::process::Signal::KILL).expect("its real user is ours");
    ExitCode::SUCCESS
}

/// Uses memory until there is a list of it, and returns the list's number.
fn use_memory_until_listed(list: &File) -> io::Result<u64> {
    let mut memory = AlignedMemory::anonymous(4 * REGION)?;
    memory.advise(0, 4 * REGION, hugepilot_os::memory::OwnAdvice::NoHugePage)?;
    memory.bytes_mut().fill(1);
    loop {
        touch(&memory, 4096);
        match head_of(list) {
            Some(head) if head.sequence > 0 => return Ok(head.sequence),
            _ => thread::sleep(SOON / 10),
        }
    }
}

fn stop_itself(socket: &str, _: u32) -> io::Result<()> {
    let (_held, list) = track(socket)?;
    use_memory_until_listed(&list)?;
    println!("{HARMS}");
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
    Ok(())
}

fn spread_over_a_terabyte(socket: &str, _: u32) -> io::Result<()> {
    let mut memory = AlignedMemory::anonymous(TERABYTE)?;
    memory.advise(0, TERABYTE, hugepilot_os::memory::OwnAdvice::NoHugePage)?;
    memory.bytes_mut().iter_mut().step_by(SPREAD).for_each(|byte| *byte = 1);
    let _held = track(socket)?;
    loop {
        memory.bytes().iter().step_by(SPREAD).for_each(|byte| _ = std::hint::black_box(*byte));
        thread::sleep(SOON);
    }
}

/// Hundreds of thousands of regions, of which page tables hardly tell.
fn alias_huge_pages(socket: &str, _: u32) -> io::Result<()> {
    let file = File::from(memfd_create("aliases", MemfdFlags::CLOEXEC)?);
    file.set_len(32 * REGION as u64)?;
    let mut first = AlignedMemory::of_file(&file, 32 * REGION)?;
    first.bytes_mut().fill(1);
    let own = PidFd::open(std::process::id())?;
    for region in 0..32 {
        // Where no huge page can be had, there are as many regions, with page tables of their own.
        let _ = advise(&own, first.address() + (region * REGION) as u64, REGION as u64, Advice::Collapse);
    }
    let memory = AlignedMemory::aliased_file(&file, 32 * REGION, 8000)?;
    let _held = track(socket)?;
    println!("{HARMS}");
    loop {
        touch(&memory, REGION);
        thread::sleep(SOON);
    }
}

/// A path of nearly 4,096 bytes that are no text, in each of 16,000 lines of `/proc/PID/maps`.
fn map_a_long_name(socket: &str, _: u32) -> io::Result<()> {
    const MAPPINGS: usize = 16_000;
    let part = OsStr::from_bytes(&[0xff; 240]);
    let mut path = std::env::current_exe()?.with_file_name(WRITABLE);
    while path.as_os_str().len() + 2 * 241 < 4096 {
        path.push(part);
    }
    std::fs::create_dir_all(&path)?;
    path.push(part);
    let file = File::options().create(true).truncate(false).read(true).write(true).open(&path)?;
    file.set_len(PAGE as u64)?;
    let _mapped = AlignedMemory::aliased_file(&file, PAGE, MAPPINGS)?;
    let _held = track(socket)?;
    println!("{HARMS}");
    loop {
        thread::sleep(SOON);
    }
}

fn flood_with_notices(socket: &str, _: u32) -> io::Result<()> {
    let (mut stream, _list) = track(socket)?;
    loop {
        stream.write_all(&Notice::Rest.line())?;
        stream.write_all(&Notice::Taken(u64::MAX).line())?;
    }
}

fn steer_others(socket: &str, target: u32) -> io::Result<()> {
    for command in ["pause", "resume", "give-back"] {
        let reply = ask(socket, format!("{{\"version\":1,\"command\":\"{command}\",\"pid\":{target}}}\n").as_bytes())?;
        let all = ask(socket, format!("{{\"version\":1,\"command\":\"{command}\"}}\n").as_bytes())?;
        if [reply, all].iter().any(|reply| !reply.is_empty() && !reply.contains("\"error\"")) {
            println!("{GAINED}: {command}");
        }
    }
    if ask(socket, STATUS)?.contains(&format!("\"pid\":{target}")) {
        println!("{GAINED}: the status of a process of another user");
    }
    thread::sleep(SOON);
    Ok(())
}

fn start_processes(_: &str, _: u32) -> io::Result<()> {
    Command::new("true").status().map(drop)
}
