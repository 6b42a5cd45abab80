//! Unix sockets: connecting with a time limit, and passing descriptors along with a message.
//!
//! With a time limit on the socket, a wait ends with EINTR when a signal is handled, even where other calls are restarted. So calls are
//! retried here until the limit.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, send, sendmsg, socket_with,
};

/// Connects, or fails in time if the listener does not accept. Each later write takes at most this long, too.
///
/// Errors: `ENOENT`, `ECONNREFUSED` nobody listens there, `EAGAIN` timed out.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    let address = SocketAddrUnix::new(path)?;
    through_signals(&socket, Timeout::Send, || rustix::net::connect(&socket, &address))?;
    Ok(UnixStream::from(socket))
}

/// Sends all of these bytes. A closed peer is an error and never SIGPIPE, whatever the program's disposition of that signal.
///
/// Errors: `EPIPE`, `EAGAIN` timed out.
pub fn send_all(stream: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = through_signals(&stream, Timeout::Send, || send(&stream, bytes, SendFlags::NOSIGNAL))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Sends bytes with a descriptor, in one attempt; returns how many bytes went. Errors: `EAGAIN` none can be sent now, `EPIPE`.
pub fn send_with(stream: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, and a descriptor if one came with them; returns how many bytes. Errors: `EAGAIN` timed out, `ECONNRESET`.
pub fn receive_with(stream: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let received = through_signals(&stream, Timeout::Recv, || {
        recvmsg(&stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

/// Retries what a signal interrupts. The kernel restarts the socket's time limit with each try, so the deadline is kept here.
fn through_signals<T>(
    socket: impl AsFd,
    waiting_to: Timeout,
    mut attempt: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let until = socket_timeout(&socket, waiting_to)?.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        match attempt() {
            Err(Errno::INTR) if until.is_none_or(|until| Instant::now() < until) => {}
            Err(Errno::INTR) => return Err(Errno::AGAIN),
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signals::Addressee;
    use std::fs::File;
    use std::io::{Read, Seek, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_descriptor_travels_with_the_bytes() {
        let (one, other) = UnixStream::pair().unwrap();
        let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(send_with(&one, b"hello", memory.as_fd()).unwrap(), 5);
        File::from(memory).write_all(b"contents").unwrap();
        let mut bytes = [0; 9];
        let (count, descriptor) = receive_with(&other, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"hello");
        let mut file = File::from(descriptor.expect("it came along"));
        file.rewind().unwrap();
        let mut contents = String::new();
        file.read_to_string(&mut contents).unwrap();
        assert_eq!(contents, "contents");
        (&one).write_all(b"alone").unwrap();
        assert!(matches!(receive_with(&other, &mut bytes).unwrap(), (5, None)));
        drop(one);
        assert!(matches!(receive_with(&other, &mut bytes).unwrap(), (0, None)));
        assert_eq!(send_all(&other, b"nobody").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn much_is_sent_whole() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let bytes = vec![7; 3 << 20];
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| send_all(one, &bytes));
            let mut read = Vec::new();
            other.read_to_end(&mut read).unwrap();
            assert_eq!(read.len(), 3 << 20);
            sent.join().unwrap().unwrap();
        });
    }

    /// Runs `what` on a thread whose waits are interrupted all the time. None if the kernel cannot send a signal to a thread.
    #[allow(unsafe_code, reason = "without a handler the signal would end the test")]
    fn interrupted<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
        let signal = libc::SIGRTMIN() + 10;
        // SAFETY: a handler that does nothing is async-signal-safe.
        unsafe { signal_hook_registry::register(signal, || ()) }.unwrap();
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let waiting = scope.spawn(move || {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
                what()
            });
            let thread = match Addressee::thread(told.recv().unwrap() as u32) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    eprintln!("skipped: this kernel sends signals to whole processes only (before 6.9)");
                    return None;
                }
                thread => thread.unwrap(),
            };
            for _ in 0..20_000 {
                if waiting.is_finished() {
                    return Some(waiting.join().unwrap());
                }
                // The thread may just have ended.
                let _ = thread.send(signal, 0);
                std::thread::sleep(Duration::from_millis(1));
            }
            panic!("as long as signals come it does not end");
        })
    }

    #[test]
    fn signals_neither_end_a_wait_nor_prolong_it() {
        let (one, other) = UnixStream::pair().unwrap();
        let wait_for = |limit| set_socket_timeout(&other, Timeout::Recv, Some(Duration::from_millis(limit))).unwrap();
        wait_for(20_000);
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            (&one).write_all(b"late").unwrap();
            one
        });
        let Some(received) = interrupted(|| receive_with(&other, &mut [0; 8])) else { return };
        assert_eq!(received.unwrap().0, 4);
        let _one = later.join().unwrap();
        wait_for(50);
        let received = interrupted(|| receive_with(&other, &mut [0; 8])).unwrap();
        assert_eq!(received.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn who_does_not_accept_does_not_hold_anybody_up() {
        let path = std::env::temp_dir().join(format!("hugepilot-socket-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(50);
        let _first = connect(&path, limit).unwrap();
        let late = (0..3).find_map(|_| connect(&path, limit).err()).expect("the queue is full");
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        if let Some(late) = interrupted(|| connect(&path, limit)) {
            assert_eq!(late.unwrap_err().kind(), io::ErrorKind::WouldBlock, "signals make no difference");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(connect(&path, limit).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
