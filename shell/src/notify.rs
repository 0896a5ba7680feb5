//! Words to systemd: ready, stopping, alive. Must not know what the process does.
//!
//! A datagram to the Unix socket that `NOTIFY_SOCKET` names; without that variable nobody listens.

use core::time::Duration;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Instant;

/// The way to systemd, if there is one.
#[derive(Debug)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that we are alive.
    watchdog: Option<Duration>,
    last: Instant,
    /// The sign of life that it last heard of.
    beat: Option<u64>,
}

impl Notify {
    /// As the environment says.
    pub fn from_environment() -> Notify {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| open(&name));
        // Told at half the time after which systemd gives up.
        let watchdog = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
        let watchdog = watchdog.filter(|us| *us > 0).map(|us: u64| Duration::from_micros(us / 2));
        Notify { socket, watchdog, last: Instant::now(), beat: None }
    }

    /// Says `what`, such as `READY=1`. Nobody is told if nobody hears it.
    pub fn say(&self, what: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(what.as_bytes(), address);
        }
    }

    /// Says that we are alive, if it is time to and `beat` is not what it was the last time: who does the
    /// work may hang while the caller does not. True if a new one is missing. To be called often.
    #[must_use]
    pub fn alive(&mut self, beat: u64) -> bool {
        let due = self.watchdog.is_some_and(|time| self.last.elapsed() >= time);
        if due && self.beat != Some(beat) {
            (self.last, self.beat) = (Instant::now(), Some(beat));
            self.say("WATCHDOG=1");
            return false;
        }
        due
    }
}

/// A name that begins with `@` is an abstract one.
fn open(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
        [b'/', ..] => SocketAddr::from_pathname(name),
        _ => return None,
    };
    let socket = UnixDatagram::unbound().ok()?;
    // systemd that does not listen must not hold us up.
    socket.set_nonblocking(true).ok()?;
    Some((socket, address.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let path = std::env::temp_dir().join(format!("kinglet-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let name = format!("kinglet-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let listeners =
            [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&abstract_name).unwrap()];
        let names = [path.clone().into_os_string(), format!("@{name}").into()];
        for (listener, name) in listeners.iter().zip(&names) {
            let watchdog = Some(Duration::ZERO);
            let mut notify = Notify { socket: open(name), watchdog, last: Instant::now(), beat: None };
            notify.say("READY=1");
            // The second one hangs.
            assert_eq!([7, 7, 8].map(|beat| notify.alive(beat)), [false, true, false]);
            notify.say("STOPPING=1");
            let mut buffer = [0; 64];
            for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"] {
                let len = listener.recv(&mut buffer).unwrap();
                assert_eq!(&buffer[..len], expected.as_bytes());
            }
        }
        std::fs::remove_file(&path).unwrap();
        let mut unwatched = Notify { socket: None, watchdog: None, last: Instant::now(), beat: None };
        assert!(!unwatched.alive(1) && !unwatched.alive(1));
        assert!(open(OsStr::new("relative")).is_none());
    }
}
