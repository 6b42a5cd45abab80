//! The commands that talk to a running daemon, run as the binary against a server; the test plays the server's loop.

use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::Duration;

use daemon::control::ControlServer;
use kernel::Root;
use kernel::target::Process;
use pilot::engine::shared_state::{SharedState, State, TargetState};
use serde_json::Value;

/// An idle program, and a server with its own state and directory.
struct Service {
    program: Child,
    process: Process,
    shared_state: SharedState,
    directory: tempfile::TempDir,
    _server: ControlServer,
}

impl Service {
    fn start() -> Self {
        let program = Command::new("sleep").arg("300").spawn().expect("sleep is there");
        let process = Process::of(&Root::host(), program.id()).expect("it runs");
        let (shared_state, directory) = (SharedState::default(), tempfile::tempdir().unwrap());
        let target = TargetState { pid: process.pid, start_ticks: process.start_ticks, ..TargetState::default() };
        shared_state.show(State { version: 1, targets: vec![target], ..State::default() });
        let server = ControlServer::start(shared_state.clone(), &socket(directory.path())).unwrap();
        Self { program, process, shared_state, directory, _server: server }
    }

    fn ask(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hugepilot"));
        command.args(line.split(' ')).arg("--socket").arg(socket(self.directory.path()));
        command.output().expect("hugepilot starts")
    }

    fn ask_well(&self, line: &str) -> String {
        let output = self.ask(line);
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Answers the next request, as the loop would.
    fn give_back(&self, regions: u64) {
        for _ in 0..2000 {
            if let Some(request) = self.shared_state.take_requests().pop() {
                assert_eq!(request.give_back, self.process);
                return request.answer.send(Ok(regions)).unwrap();
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("nobody asked");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.program.kill().and_then(|()| self.program.wait()).expect("it ran");
    }
}

fn socket(directory: &Path) -> std::path::PathBuf {
    directory.join("control.sock")
}

#[test]
fn status_pause_and_resume_ask_the_daemon() {
    let service = Service::start();
    let pid = service.process.pid;
    assert!(service.ask_well("status").contains(&format!("\n{pid}  ")) || pid < 1000);
    assert!(service.ask_well(&format!("pause {pid}")).contains(&format!("`hugepilot resume {pid}`")));
    let json = service.ask_well("status --json");
    assert_eq!(serde_json::from_str::<State>(&json).unwrap().targets, service.shared_state.state().targets);
    assert!(service.shared_state.is_paused(service.process));
    assert_eq!(service.ask_well(&format!("resume {pid}")), format!("process {pid} is piloted again\n"));
    assert!(!service.shared_state.is_paused(service.process));
    let refused = service.ask("pause 1");
    assert_eq!(refused.status.code(), Some(1));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.starts_with("error: the hugepilot daemon refused: process 1 is no target of yours here"), "{why}");
}

#[test]
fn what_the_daemon_pilots_is_given_back_by_the_daemon() {
    let service = Service::start();
    let pid = service.process.pid;
    thread::scope(|scope| {
        let told = scope.spawn(|| service.ask_well(&format!("give-back {pid}")));
        service.give_back(3);
        let told = told.join().unwrap();
        assert!(told.contains("gave back 3 regions (6 MiB)") && told.contains(&format!("`hugepilot resume {pid}`")));
        let told = scope.spawn(|| service.ask_well(&format!("give-back {pid} --json")));
        service.give_back(0);
        let json: Value = serde_json::from_str(&told.join().unwrap()).unwrap();
        assert_eq!((&json["pid"], &json["applied"], &json["paused"]), (&pid.into(), &0.into(), &true.into()));
    });
    assert!(service.shared_state.is_paused(service.process));
}

#[test]
fn what_no_daemon_pilots_is_given_back_as_without_one() {
    let service = Service::start();
    service.shared_state.show(State { version: 1, ..State::default() });
    let output = service.ask(&format!("give-back {}", service.process.pid));
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("promoted nothing") || why.contains("missing CAP_"), "{why}");
    assert!(service.shared_state.take_requests().is_empty() && !service.shared_state.is_paused(service.process));
}
