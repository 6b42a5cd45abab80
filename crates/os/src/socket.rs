//! Unix sockets: connecting in time, and descriptors that travel with a message.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, send, sendmsg, socket_with,
};

/// Connects, or errors in time where somebody listens but does not accept. Each later write takes at most this time, too.
///
/// Errors: `ENOENT`, `ECONNREFUSED` nobody listens there, `EAGAIN` it took too long.
pub fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Sends all of these bytes; whoever is gone is an error and no SIGPIPE, whatever the program that this is part of does about that.
///
/// Errors: `EPIPE`, `EAGAIN` it took too long.
pub fn send_all(stream: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = retry_on_intr(|| send(&stream, bytes, SendFlags::NOSIGNAL))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Sends bytes with a descriptor, in one attempt; says how many bytes went. Errors: `EAGAIN` none can be sent now, `EPIPE`.
pub fn send_with(stream: impl AsFd, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    Ok(sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, and a descriptor if one came with them; says how many bytes. Errors: `EAGAIN` it took too long, `ECONNRESET`.
pub fn receive_with(stream: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn who_does_not_accept_does_not_hold_anybody_up() {
        let path = std::env::temp_dir().join(format!("hugepilot-socket-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let limit = Duration::from_millis(50);
        let _first = connect(&path, limit).unwrap();
        let late = (0..3).find_map(|_| connect(&path, limit).err()).expect("the queue is full");
        assert_eq!(late.kind(), io::ErrorKind::WouldBlock);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(connect(&path, limit).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
