//! The systemd unit: what is started, and all it is not allowed to do.

use super::layout::Layout;

/// Its name.
pub const NAME: &str = "kinglet.service";
/// The only folder that the service may write to; `StateDirectory=` makes it.
pub const STATE: &str = "/var/lib/kinglet";

/// How the service is started, watched and ended. It says when the model is loaded. It shows the watchdog
/// that the engine goes on; a step may take long, the first one on a cold model from a slow card above all.
/// SIGTERM gives replies 30 s to end, and the cache 30 more to be written; the exit code then is 143. A board
/// is left alone for months, so that systemd never gives up.
const SERVICE: &str = "\
Type=notify
TimeoutStartSec=300
WatchdogSec=300
KillSignal=SIGTERM
TimeoutStopSec=90
SuccessExitStatus=143
Restart=on-failure
RestartSec=10
";

/// The binary maps the model read-only, starts threads and pins them: `@system-service` has all of it. The
/// folder is bound as it may lie where `ProtectHome` or `PrivateTmp` would hide it. AF_UNIX is for systemd
/// and the journal. Whatever `host` is, machines of private networks alone are answered.
const HARDENING: &str = "\
DynamicUser=yes
StateDirectory=kinglet
StateDirectoryMode=0700
UMask=0077
LimitMEMLOCK=infinity
LimitCORE=0
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=tmpfs
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
IPAddressDeny=any
IPAddressAllow=localhost link-local 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @obsolete
SystemCallErrorNumber=EPERM
";

/// The unit file. Its words were checked with the options: none needs systemd's quoting.
pub fn text(layout: &Layout, runner: &[String], model: &str) -> String {
    let mut words = runner.to_vec();
    // The model last: the next deploy looks for it there.
    words.extend([&*layout.binary, "serve", "--config", &*layout.conf, "-m", model].map(str::to_owned));
    format!(
        "# Written by `cargo xtask deploy`, which replaces it the next time. Yours are {conf}\n\
         # and drop-ins (systemctl edit kinglet).\n\
         [Unit]\n\
         Description=kinglet: a language model behind HTTP\n\
         After=network.target\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         ExecStart={words}\n\
         WorkingDirectory={STATE}\n\
         {SERVICE}\
         {HARDENING}\
         BindReadOnlyPaths={dir}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        conf = layout.conf,
        words = words.join(" "),
        dir = layout.dir
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
        text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
    }

    #[test]
    fn it_starts_the_service() {
        let layout = Layout::new("/opt/kinglet", "/etc/systemd/system");
        let unit = text(&layout, &["qemu-aarch64".to_owned()], "/opt/kinglet/models/m.gguf");
        let started = "qemu-aarch64 /opt/kinglet/bin/kinglet serve --config /opt/kinglet/kinglet.conf \
                       -m /opt/kinglet/models/m.gguf";
        assert_eq!(values(&unit, "ExecStart"), [started]);
        assert_eq!(values(&unit, "BindReadOnlyPaths"), ["/opt/kinglet"]);
        assert_eq!(values(&unit, "WorkingDirectory"), [STATE]);
        assert_eq!(STATE, format!("/var/lib/{}", values(&unit, "StateDirectory")[0]));
    }

    #[test]
    fn every_line_is_a_section_or_has_a_key() {
        let unit =
            text(&Layout::new("/opt/kinglet", "/etc/systemd/system"), &[], "/opt/kinglet/models/m.gguf");
        for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let key = line.split_once('=').map(|(key, _)| key);
            let is_key = key.is_some_and(|k| !k.is_empty() && k.bytes().all(|b| b.is_ascii_alphabetic()));
            assert!(is_key || matches!(line, "[Unit]" | "[Service]" | "[Install]"), "{line}");
        }
        for (key, value) in [
            ("NoNewPrivileges", "yes"),
            ("CapabilityBoundingSet", ""),
            ("ProtectSystem", "strict"),
            ("MemoryDenyWriteExecute", "yes"),
            ("Restart", "on-failure"),
            ("Type", "notify"),
            ("KillSignal", "SIGTERM"),
        ] {
            assert_eq!(values(&unit, key), [value], "{key}");
        }
    }
}
