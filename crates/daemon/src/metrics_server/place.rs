//! Where metrics are served: a loopback address, or a Unix socket with a mode.
//!
//! Owns: how a place is written, and listening there. Never touches: connections.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hugepilot_os::run_directory::RUN_DIRECTORY;

use crate::unix_socket;

/// The mode of a socket unless another is given: root only.
pub const DEFAULT_MODE: u32 = 0o600;

/// A place of this machine alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsPlace {
    /// An address that every process on this machine can reach.
    Loopback(SocketAddr),
    /// A Unix socket: its mode says who can reach it.
    Socket {
        /// Its path, from the root on.
        path: PathBuf,
        /// Its mode, such as `0o660`.
        mode: u32,
    },
}

impl MetricsPlace {
    /// The directory of a socket, if it is not there. `/run/hugepilot` is made when it is needed; any other may be a typing error.
    pub(super) fn missing_directory(&self) -> Option<&Path> {
        let Self::Socket { path, .. } = self else { return None };
        path.parent().filter(|directory| *directory != Path::new(RUN_DIRECTORY) && !directory.is_dir())
    }

    /// Whether both are the same socket, whatever their modes.
    pub(super) fn is_same_socket(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Socket { path, .. }, Self::Socket { path: other, .. }) if path == other)
    }
}

impl FromStr for MetricsPlace {
    type Err = String;

    /// A path begins with `/`; everything else is an address. Errors: it is neither, or an address of other machines.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Socket { path: text.into(), mode: DEFAULT_MODE });
        }
        let address = text.parse().ok().filter(|address: &SocketAddr| address.ip().is_loopback());
        address.map(Self::Loopback).ok_or_else(|| {
            format!(
                "'{text}' is not an address of this machine alone: write 127.0.0.1:9472, [::1]:9472, or the path of a Unix socket"
            )
        })
    }
}

impl fmt::Display for MetricsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => address.fmt(f),
            Self::Socket { path, .. } => path.display().fmt(f),
        }
    }
}

/// A listening socket that is never waited for.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens; returns also the place with the port that was picked, and the file of a socket. Errors: the place is taken, or cannot be listened on.
    pub(super) fn at(place: &MetricsPlace) -> io::Result<(Self, MetricsPlace, Option<unix_socket::Bound>)> {
        match place {
            MetricsPlace::Loopback(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?;
                Ok((Self::Tcp(listener), MetricsPlace::Loopback(address), None))
            }
            MetricsPlace::Socket { path, mode } => {
                let (listener, bound) = unix_socket::listen(path, *mode)?;
                Ok((Self::Unix(listener), place.clone(), Some(bound)))
            }
        }
    }

    /// The next connection, which never blocks. Errors: `WouldBlock` there is none; others as the kernel says.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(stream.into())
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix(listener) => listener.as_fd(),
        }
    }
}
