//! The file of the service's flags, as the first deploy writes it. Must not know the unit.

/// Port where nothing else is said: that of `kinglet serve`.
const PORT: u16 = 8080;

/// The file. What it sets aside in comments are the defaults, or what would be useful.
pub fn text(port: Option<u16>) -> String {
    let port = port.unwrap_or(PORT);
    format!(
        "\
# Flags of `kinglet serve`, one a line; `kinglet help serve` has them all. The first `cargo xtask deploy`
# wrote this file, and no later one changes it. After a change: systemctl restart kinglet
#
# The model is named by the unit: `cargo xtask deploy --model FILE` brings another one.

# This machine only. 0.0.0.0 lets others ask, of private networks (IPAddressAllow in the unit): set keys then.
host = 127.0.0.1
port = {port}

# Conversations outlive a restart in this folder of /var/lib/kinglet, where alone the service may write.
disk-kv = kv
# For SD cards and eMMC:
# disk-kv-max-bytes = 4G
# disk-kv-daily-write-bytes = 2G

# Who asks must know one of the keys, each a line of a file that root alone reads. It reaches the service by
# `systemctl edit kinglet`: in section [Service], LoadCredential=keys:/etc/kinglet.keys
# api-key-file = /run/credentials/kinglet.service/keys

# parallel = 4
# ctx = 8192
# idle-trim = 600
# log-prompts = true
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_name_is_a_flag() {
        let shell = crate::sh::root().join("shell/src");
        let help: String = ["cmd_serve.rs", "cache_flags.rs", "setup.rs"]
            .map(|name| fs::read_to_string(shell.join(name)).unwrap())
            .concat();
        let text = text(Some(81));
        let mut names = Vec::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(" = ")) {
            let name = name.trim_start_matches("# ");
            assert!(help.contains(&format!(" --{name} ")), "{name}");
            assert!(!value.contains(' '), "{value}");
            names.push(name);
        }
        assert!(names.len() > 8 && text.contains("\nport = 81\n"), "{text}");
    }
}
