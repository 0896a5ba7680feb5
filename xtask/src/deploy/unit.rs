//! The systemd unit: what is started, and all it is not allowed to do.

use super::health;
use super::layout::Layout;

/// Its name.
pub const NAME: &str = "kinglet.service";

/// How the unit is started, by what kinglet can do: a server will be a `Type=exec` service with a port here.
const SERVICE: &str = "\
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=300
Restart=on-failure
RestartSec=5
";

/// The rest is the same for a server, but for the network. The binary maps the model read-only, starts
/// threads and pins them: `@system-service` has all of it. The folder is bound as it may lie where
/// `ProtectHome` or `PrivateTmp` would hide it. AF_UNIX is for the C library and the journal.
const HARDENING: &str = "\
DynamicUser=yes
StateDirectory=kinglet
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
PrivateNetwork=yes
IPAddressDeny=any
RestrictAddressFamilies=AF_UNIX
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
pub fn text(layout: &Layout, runner: &[String]) -> String {
    let words = health::last_words(layout, runner).join(" ");
    format!(
        "# Written by `cargo xtask deploy`, which replaces it the next time.\n\
         [Unit]\n\
         Description=kinglet: self-check of the deployed version\n\
         StartLimitIntervalSec=600\n\
         StartLimitBurst=3\n\
         \n\
         [Service]\n\
         ExecStart={words}\n\
         {SERVICE}\
         {HARDENING}\
         BindReadOnlyPaths={dir}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
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
    fn it_starts_what_the_health_check_runs() {
        let mut layout = Layout::new("/opt/kinglet", "/etc/systemd/system");
        assert_eq!(values(&text(&layout, &[]), "ExecStart"), ["/opt/kinglet/bin/kinglet --version"]);
        layout.model = Some("/opt/kinglet/models/m.gguf".into());
        let runner = ["qemu-aarch64".to_owned()];
        let unit = text(&layout, &runner);
        let started = values(&unit, "ExecStart");
        assert!(started[0].starts_with("qemu-aarch64 /opt/kinglet/bin/kinglet logits "), "{started:?}");
        assert!(started[0].contains("/opt/kinglet/models/m.gguf"), "{started:?}");
        assert_eq!(values(&unit, "BindReadOnlyPaths"), ["/opt/kinglet"]);
    }

    #[test]
    fn every_line_is_a_section_or_has_a_key() {
        let unit = text(&Layout::new("/opt/kinglet", "/etc/systemd/system"), &[]);
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
        ] {
            assert_eq!(values(&unit, key), [value], "{key}");
        }
    }
}
