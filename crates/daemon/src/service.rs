//! Notifications to systemd about the service.
//!
//! Owns: their format. Never touches: what the service does, or when. Without a service manager (no `NOTIFY_SOCKET`) nothing happens.

use sd_notify::NotifyState;

/// Maximum length of a status in characters: `systemctl status` shows one line.
const MOST_STATUS: usize = 256;

/// Started, or done reloading.
pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
}

/// Reloading the configuration; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("cannot read the clock that systemd is told when reloading: {error}"),
    }
}

/// Stopping on request.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// The current activity, for `systemctl status`.
pub fn status(status: &str) {
    notify(&[NotifyState::Status(&one_line(status))]);
}

/// Alive and working: to be called at least twice within the watchdog timeout (`WatchdogSec=`).
pub fn watchdog() {
    notify(&[NotifyState::Watchdog]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!("cannot tell systemd through NOTIFY_SOCKET ({states:?}): {error}");
    }
}

/// A line break would start another notification.
fn one_line(status: &str) -> String {
    let characters = status.chars().take(MOST_STATUS);
    characters.map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::Command;

    use super::*;

    /// Set when a test runs as the service, in a process of its own: the environment is shared by the whole process.
    const AS_SERVICE: &str = "HUGEPILOT_TEST_AS_SERVICE";

    fn as_service(test: &str, environment: &[(&str, &str)]) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).env(AS_SERVICE, "1").env_remove("NOTIFY_SOCKET");
        let output = command.envs(environment.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn systemd_hears_each_step() {
        if std::env::var_os(AS_SERVICE).is_some() {
            ready("2 targets\nMAINPID=1");
            watchdog();
            reloading();
            status(&"ä".repeat(MOST_STATUS + 1));
            return stopping();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        let environment = [("NOTIFY_SOCKET", path.to_str().unwrap())];
        as_service("service::tests::systemd_hears_each_step", &environment);
        let heard = || {
            let mut bytes = [0; 1024];
            let length = socket.recv(&mut bytes).expect("a notification");
            String::from_utf8(bytes[..length].to_vec()).unwrap()
        };
        assert_eq!(heard(), "READY=1\nSTATUS=2 targets MAINPID=1\n");
        assert_eq!(heard(), "WATCHDOG=1\n");
        assert!(heard().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(heard(), format!("STATUS={}\n", "ä".repeat(MOST_STATUS)));
        assert_eq!(heard(), "STOPPING=1\n");
    }

    #[test]
    fn without_systemd_nothing_happens() {
        if std::env::var_os(AS_SERVICE).is_some() {
            ready("");
            return stopping();
        }
        as_service("service::tests::without_systemd_nothing_happens", &[]);
        as_service("service::tests::without_systemd_nothing_happens", &[("NOTIFY_SOCKET", "/nowhere/at/all")]);
    }
}
