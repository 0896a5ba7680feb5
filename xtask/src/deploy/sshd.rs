//! A real ssh server on the loopback interface, for the step `deploy`: keys, configuration and files
//! in a folder of its own, the current user, and a PATH in which some commands are stand-ins.

use crate::sh::{self, Context, Failure, Outcome};
use core::net::Ipv4Addr;
use core::time::Duration;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Where Debian has it; sshd starts itself again and wants to be called by its whole path.
const SSHD: &str = "/usr/sbin/sshd";
/// sshd of root wants this folder, which the service would have made.
const PRIVILEGE_FOLDER: &str = "/run/sshd";
/// Name of the host in the configuration of ssh.
const HOST: &str = "board";

/// Whether the server is installed.
pub fn has_sshd() -> bool {
    Path::new(SSHD).exists()
}

/// A port of 127.0.0.1 that was free a moment ago; whoever takes it meanwhile makes us fail, not hang.
///
/// # Errors
/// There is none.
pub fn free_port() -> Outcome<u16> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    Ok(port.context("no free port on 127.0.0.1")?.port())
}

/// The server; ended when dropped.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    folder: PathBuf,
    /// On 127.0.0.1.
    pub port: u16,
    /// `USER@HOST` for ssh.
    pub destination: String,
}

impl Sshd {
    /// Starts a server whose files lie in `folder` and whose sessions find commands in `commands` first.
    ///
    /// # Errors
    /// No sshd or ssh-keygen, or it does not come up.
    pub fn start(folder: &Path, commands: &Path) -> Outcome<Sshd> {
        let user =
            sh::output("id", &["-un"]).ok_or_else(|| Failure::new("`id -un` does not say who I am"))?;
        if sh::output("id", &["-u"]).as_deref() == Some("0") {
            fs::create_dir_all(PRIVILEGE_FOLDER).context(format_args!("cannot make {PRIVILEGE_FOLDER}"))?;
        }
        for name in ["host_key", "user_key", "stranger_key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
            sh::run(&mut keygen)?;
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).context(name);
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).context(name);
        write("authorized_keys", &read("user_key.pub")?)?;
        write("known_hosts", &format!("{HOST} {}", read("host_key.pub")?))?;

        let port = free_port()?;
        let at = folder.display();
        let path = std::env::var("PATH").unwrap_or_default();
        let commands = commands.display();
        write(
            "sshd_config",
            &format!(
                "ListenAddress 127.0.0.1\nPort {port}\nPidFile {at}/pid\nHostKey {at}/host_key\n\
                 AuthorizedKeysFile {at}/authorized_keys\nAllowUsers {user}\nUsePAM no\nStrictModes no\n\
                 PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
                 PermitRootLogin prohibit-password\nAllowTcpForwarding no\nX11Forwarding no\n\
                 LogLevel VERBOSE\nSetEnv \"PATH={commands}:{path}\"\n"
            ),
        )?;
        write(
            "ssh_config",
            &format!(
                "Host {HOST}\n  HostName 127.0.0.1\n  HostKeyAlias {HOST}\n  StrictHostKeyChecking yes\n  \
                 UserKnownHostsFile {at}/known_hosts\n  GlobalKnownHostsFile {at}/known_hosts\n  \
                 IdentityAgent none\n"
            ),
        )?;
        let mut command = Command::new(SSHD);
        // -D: it stays our child, so that nothing else is ever ended in its place.
        command.arg("-D").arg("-f").arg(folder.join("sshd_config")).arg("-E").arg(folder.join("log"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.context(format_args!("cannot start {SSHD}"))?;
        let destination = format!("{user}@{HOST}");
        let mut sshd = Sshd { child, folder: folder.to_owned(), port, destination };
        sshd.wait_until_up()?;
        Ok(sshd)
    }

    fn wait_until_up(&mut self) -> Outcome {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            let ended = self.child.try_wait().context("cannot wait for sshd")?;
            if ended.is_some() || start.elapsed() > Duration::from_secs(20) {
                return Err(Failure::new(format!("sshd does not come up: {}", self.log().trim())));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What the server wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// How many logins it accepted so far.
    pub fn logins(&self) -> usize {
        self.log().matches("Accepted publickey").count()
    }

    /// A file of the server's folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
