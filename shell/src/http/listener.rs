//! Sockets that listen. Must not know what comes of the connections.

use super::Bind;
use crate::failure::{Failure, printable};
use core::fmt::Write;
use rustix::event::PollFlags;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, PipeReader};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::wire::{Lost, wait};

/// Connections that the system keeps until they are accepted.
const BACKLOG: i32 = 128;

/// A socket that listens. A Unix socket's file goes with it.
#[derive(Debug)]
pub enum Listener {
    /// Over IP.
    Tcp(TcpListener),
    /// A file.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket, as long as it is ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

impl Listener {
    /// Listens from now on.
    ///
    /// # Errors
    /// The address is taken, or not ours to take; what stands in the socket's place is not a socket, or
    /// somebody answers on it.
    pub fn new(bind: &Bind) -> Result<Listener, Failure> {
        let (place, result) = match bind {
            Bind::Tcp(address) => (address.to_string(), TcpListener::bind(address).map(Listener::Tcp)),
            Bind::Unix(path) => (printable(path), unix(path)),
        };
        let listener = result.and_then(|listener| listener.set_nonblocking().map(|()| listener));
        listener.map_err(|e| {
            let mut line = String::from("cannot listen on ");
            // Writing to a string does not fail.
            let _ = write!(line, "{place}: {e}");
            Failure::Failed(line)
        })
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Tcp(tcp) => tcp.set_nonblocking(true),
            Listener::Unix(unix, _) => unix.set_nonblocking(true),
        }
    }

    /// `http://127.0.0.1:8080`, or `unix:` and the path.
    pub fn address(&self) -> String {
        match self {
            Listener::Tcp(tcp) => match tcp.local_addr() {
                Ok(address) => String::from("http://") + &address.to_string(),
                Err(_) => String::from("http://?"),
            },
            Listener::Unix(_, file) => String::from("unix:") + &printable(&file.path),
        }
    }

    /// The next connection and who it is, or `None` if `stop` came before the deadline.
    ///
    /// # Errors
    /// The system has no descriptor or memory for it, or the client was gone at once.
    pub fn accept(&self, stop: &PipeReader, deadline: Instant) -> io::Result<Option<(OwnedFd, String)>> {
        loop {
            let accepted = match self {
                Listener::Tcp(tcp) => tcp.accept().map(|(stream, address)| {
                    // Pieces of an answer are sent as they come. Without it, they are only late.
                    let _ = stream.set_nodelay(true);
                    (OwnedFd::from(stream), address.to_string())
                }),
                Listener::Unix(unix, _) => {
                    unix.accept().map(|(stream, _)| (OwnedFd::from(stream), String::from("unix")))
                }
            };
            match accepted {
                Ok(accepted) => return Ok(Some(accepted)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            let fd = match self {
                Listener::Tcp(tcp) => tcp.as_fd(),
                Listener::Unix(unix, _) => unix.as_fd(),
            };
            match wait(fd, PollFlags::IN, Some(stop.as_fd()), deadline) {
                Err(Lost::Stopping) => return Ok(None),
                Err(Lost::Gone) => return Err(io::ErrorKind::Other.into()),
                Ok(()) | Err(Lost::Late) => {}
            }
        }
    }
}

fn unix(path: &Path) -> io::Result<Listener> {
    remove_stale(path)?;
    // By hand, since its mode must be right before anybody can connect.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    let meta = std::fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_path_buf(), id: (meta.dev(), meta.ino()) };
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(Listener::Unix(UnixListener::from(socket), file))
}

/// Removes the socket of a process that is no more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !meta.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"));
    }
    match UnixStream::connect(path) {
        Err(e) if e.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error()) => std::fs::remove_file(path),
        Err(e) => Err(e),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program answers there")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours =
            std::fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.id);
        if is_ours {
            // The next server removes it otherwise.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
