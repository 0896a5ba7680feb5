//! The shell scripts that run on the remote. Nothing is ever put into their text: what varies comes
//! as positional parameters, so that no name can become a command.
//!
//! They must run in any POSIX sh with the commands of a small board (BusyBox has all of them).

/// A script and how it is run.
#[derive(Debug)]
pub struct Script {
    /// What it does, for the reader.
    pub what: &'static str,
    /// For `sh -c`.
    pub text: &'static str,
    /// Whether it changes the remote, and so goes through sudo where that is asked for.
    pub changes: bool,
    /// How long it may take; `None` for transfers, where ssh notices a dead connection.
    pub seconds: Option<u64>,
}

/// `$1` the folder of kinglet, `$2` the unit's file, `$3` that of the service's flags. Says what the remote
/// is as `name=value` lines.
pub const PROBE: Script = Script {
    what: "look at the remote",
    text: r#"set -eu
echo "machine=$(uname -m)"
for tool in sha256sum systemctl curl wget bash; do
  if command -v "$tool" >/dev/null; then echo "$tool=yes"; fi
done
if [ -e "$3" ]; then echo conf=yes; fi
if [ -r "$2" ]; then sed -n 's/^ExecStart=.* -m \([^ ]*\)$/model=\1/p' "$2"; fi
dir=$1
while [ ! -d "$dir" ]; do dir=$(dirname "$dir"); done
df -Pk "$dir" | { read -r heading; read -r device blocks used free rest; echo "free_kib=$free"; }"#,
    changes: false,
    seconds: Some(30),
};

/// Makes the folders `$1`, `$2`, ...
pub const PREPARE: Script = Script {
    what: "make the folders",
    text: r#"set -eu
umask 022
mkdir -p "$@""#,
    changes: true,
    seconds: Some(30),
};

/// Standard input to the file `$1` of mode `$2`, which appears under a temporary name; says its SHA-256.
pub const RECEIVE: Script = Script {
    what: "copy under a temporary name",
    text: r#"set -eu
umask 022
cat > "$1" || { rm -f "$1"; exit 1; }
chmod "$2" "$1"
sync
sha256sum < "$1""#,
    changes: true,
    seconds: None,
};

/// Writes `$2` to the file `$1`.
pub const WRITE: Script = Script {
    what: "write under a temporary name",
    text: r#"set -eu
umask 022
printf '%s' "$2" > "$1"
chmod 644 "$1""#,
    changes: true,
    seconds: Some(30),
};

/// `$1` a model's file, `$2` a part of it that an earlier run left, `$3` the model's bytes.
/// Says `sha256=` of a file of that size, and `part=` bytes.
pub const MODEL_STATE: Script = Script {
    what: "look for the model",
    text: r#"set -eu
if [ -f "$1" ] && [ $(wc -c < "$1") -eq "$3" ]; then echo "sha256=$(sha256sum < "$1")"; fi
if [ -f "$2" ]; then echo "part=$(wc -c < "$2")"; fi"#,
    changes: false,
    // 8 GB from a slow card.
    seconds: Some(900),
};

/// Standard input to the end of the file `$1`; says the SHA-256 of the whole. What came is kept
/// when the connection breaks.
pub const APPEND: Script = Script {
    what: "copy the model",
    text: r#"set -eu
umask 022
cat >> "$1"
sync
sha256sum < "$1""#,
    changes: true,
    seconds: None,
};

/// Removes the files `$1`, `$2`, ...
pub const DISCARD: Script =
    Script { what: "remove", text: r#"rm -f "$@""#, changes: true, seconds: Some(30) };

/// Keeps each of the files `$1`, `$2`, ... under its name with `.previous`; a hard link costs nothing.
/// A file that is not there has no previous one afterwards.
pub const KEEP: Script = Script {
    what: "keep the version before",
    text: r#"set -eu
for file in "$@"; do
  rm -f "$file.previous"
  if [ -e "$file" ]; then ln "$file" "$file.previous" 2>/dev/null || cp -p "$file" "$file.previous"; fi
done"#,
    changes: true,
    seconds: Some(300),
};

/// Renames `$1` to `$2`, `$3` to `$4`, ...: at any moment each name is the old file or the new one.
pub const REPLACE: Script = Script {
    what: "put the new version in place",
    text: r#"set -eu
while [ $# -gt 0 ]; do
  mv -f "$1" "$2"
  shift 2
done
sync"#,
    changes: true,
    seconds: Some(120),
};

/// Lets systemd read the units again and starts `$1` now and at every boot. systemd counts starts and
/// refuses the fourth within the unit's limit: those of earlier deploys must not count.
pub const START: Script = Script {
    what: "start the unit",
    text: r#"set -eu
systemctl daemon-reload
systemctl enable --quiet "$1"
systemctl reset-failed "$1" 2>/dev/null || :
systemctl restart "$1""#,
    changes: true,
    // The unit's own limits, to stop and to start, are shorter.
    seconds: Some(420),
};

/// Brings back what `KEEP` kept of the files `$3`, `$4`, ... and takes away those that were not there
/// before; says `back FILE` or `removed FILE`. `$1` is the unit's name and `$2` its file, both empty
/// without systemd. Goes on after a failure. A file that was kept and not yet replaced has two names, and
/// some `mv` refuse to make one of them.
pub const ROLL_BACK: Script = Script {
    what: "bring the version before back",
    text: r#"set -u
unit=$1 unit_file=$2
shift 2
failed=0
if [ -n "$unit" ] && [ ! -e "$unit_file.previous" ]; then
  systemctl disable --now --quiet "$unit" || echo "systemctl disable failed" >&2
fi
for file in "$@"; do
  if [ "$file.previous" -ef "$file" ]; then rm -f "$file.previous" && echo "back $file" || failed=1
  elif [ -e "$file.previous" ]; then mv -f "$file.previous" "$file" && echo "back $file" || failed=1
  else rm -f "$file" && echo "removed $file" || failed=1
  fi
done
sync
if [ -n "$unit" ]; then
  systemctl daemon-reload || failed=1
  if [ -e "$unit_file" ]; then
    systemctl reset-failed "$unit" 2>/dev/null || :
    systemctl restart "$unit" || echo "systemctl restart failed" >&2
  fi
fi
exit "$failed""#,
    changes: true,
    seconds: Some(420),
};

/// What the unit `$1` said last, for whoever looks for the fault. Not everybody may read it.
pub const LAST_WORDS: Script = Script {
    what: "ask for the unit's last words",
    text: r#"systemctl status --no-pager --full --lines=20 "$1" >&2 || :"#,
    changes: true,
    seconds: Some(30),
};

/// Runs `$1` with the words that follow.
pub const RUN: Script =
    Script { what: "check the health", text: r#"exec "$@""#, changes: false, seconds: Some(300) };

/// What systemd says of the unit `$1`.
pub const STATUS: Script = Script {
    what: "ask for the status",
    text: r#"systemctl show --property=ActiveState,SubState,Result,StatusText "$1""#,
    changes: false,
    seconds: Some(30),
};

/// A word for the remote's shell: in single quotes, which any shell takes literally.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command line that runs `script` on the remote with `args` as its parameters.
pub fn line(script: &Script, args: &[&str], sudo: bool) -> String {
    let mut line = String::from(if sudo && script.changes { "sudo -n sh -c " } else { "sh -c " });
    line.push_str(&quoted(script.text));
    for word in core::iter::once(&"kinglet-deploy").chain(args) {
        line.push(' ');
        line.push_str(&quoted(word));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    /// Runs a command line as the remote's shell would.
    fn shell(line: &str) -> (Option<i32>, String) {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("kinglet-xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn words_arrive_as_they_are() {
        let words = ["", "a b", "$(id)", "`id`", "a'b", "''", "\"", "\\", "a\nb", "*", "-n", "; exit 3"];
        let script = Script { text: r#"for word; do printf '<%s>' "$word"; done"#, ..RUN };
        let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
        assert_eq!(shell(&line(&script, &words, false)), (Some(0), expected));
    }

    #[test]
    fn sudo_is_for_changes_only() {
        assert!(line(&REPLACE, &[], true).starts_with("sudo -n sh -c "));
        assert!(line(&REPLACE, &[], false).starts_with("sh -c "));
        assert!(line(&RUN, &["x"], true).starts_with("sh -c "));
    }

    #[test]
    fn a_file_comes_back_and_a_first_one_goes() {
        let dir = folder("roll-back");
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let (old, first) = (path("old"), path("first"));
        fs::write(&old, "1").unwrap();
        // Left over from a deploy long ago; it must not come back.
        fs::write(path("first.previous"), "stale").unwrap();
        for _ in 0..2 {
            let (new_old, new_first) = (path("a.new"), path("b.new"));
            fs::write(&new_old, "2").unwrap();
            fs::write(&new_first, "2").unwrap();
            assert_eq!(shell(&line(&KEEP, &[&old, &first], false)).0, Some(0));
            assert_eq!(shell(&line(&REPLACE, &[&new_old, &old, &new_first, &first], false)).0, Some(0));
            assert_eq!(fs::read_to_string(&old).unwrap(), "2");
            assert_eq!(fs::read_to_string(&first).unwrap(), "2");
            assert_eq!(shell(&line(&ROLL_BACK, &["", "", &old, &first], false)).0, Some(0));
            assert_eq!(fs::read_to_string(&old).unwrap(), "1");
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "only the old file is left");
        }
        // Kept twice before anything was replaced: a run that was broken off.
        assert_eq!(shell(&line(&KEEP, &[&old], false)).0, Some(0));
        assert_eq!(shell(&line(&KEEP, &[&old], false)).0, Some(0));
        assert_eq!(shell(&line(&ROLL_BACK, &["", "", &old], false)).0, Some(0));
        assert_eq!(fs::read_to_string(&old).unwrap(), "1");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_probe_finds_the_next_folder_that_is_there() {
        let (dir, file) = (folder("probe"), |name: &str| folder("probe").join(name).display().to_string());
        let unit =
            "[Service]\nExecStart=qemu /k serve --config /c -m /opt/kinglet/models/a.gguf\nType=notify\n";
        fs::write(dir.join("unit"), unit).unwrap();
        let ask = |conf: &str| shell(&line(&PROBE, &["/no/such/folder", &file("unit"), &file(conf)], false));
        let (code, said) = ask("unit");
        assert!(said.contains("conf=yes\nmodel=/opt/kinglet/models/a.gguf\n"), "{said}");
        assert!(!ask("no-conf").1.contains("conf"));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(code, Some(0));
        let free = said.lines().find_map(|l| l.strip_prefix("free_kib=")).unwrap();
        assert!(free.parse::<u64>().is_ok(), "{said}");
        assert!(said.contains("machine="), "{said}");
    }
}
