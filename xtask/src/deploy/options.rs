//! The command line of `cargo xtask deploy`: what may be asked, and which words are refused.
//!
//! Everything that reaches the remote shell or the unit file comes through here. The alphabets are
//! narrow on purpose: a name that needs quoting is refused, and quoted all the same.

use crate::sh::{Failure, Outcome};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Text of `--help`.
pub const HELP: &str = "\
Usage: cargo xtask deploy [USER@]HOST [OPTIONS]

Builds the static aarch64 binary, checks its size, copies it over ssh under a temporary name, compares its
SHA-256 there, keeps the version before, puts the new one in place by a rename, checks that it computes what
this machine computes, starts `kinglet serve` as a systemd unit and asks it for its health. If any of that
fails, the version before comes back and the exit code is 1.

The remote needs sh with the usual commands, sha256sum and, for the unit, systemctl and one of curl, wget and
bash.

  --model FILE         also this model; not sent if it is there, resumed if part of it is. Without it the
                       unit keeps the model that it has
  --serve-port N       where the service listens, for the kinglet.conf of a first deploy; default 8080
  --dir DIR            where on the remote; default /opt/kinglet
  --sudo               change things through `sudo -n` (for a user who is not root)
  --no-unit            leave systemd alone: no service
  --unit-dir DIR       where the unit goes; default /etc/systemd/system
  --binary FILE        deploy this aarch64 program instead of building one
  --port N             of the ssh server
  --identity FILE      the ssh key
  --ssh-config FILE    instead of the user's own (ssh -F): jump hosts, known hosts and so on
  --remote-runner CMD  before the binary on the remote, as 'qemu-aarch64 -cpu cortex-a76'
  --dry-run            print every step and command; build, connect and change nothing

Checked are, in this order: `kinglet --version`; with --model the hash of the logits of a few ids, which must
be this machine's; that the unit starts, which it has when the model is loaded; and GET /health, asked on the
remote. Address, port, keys and cache are set in DIR/kinglet.conf there: the first deploy writes it, with
comments, and no later one changes it.
";

/// What was asked for, checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// `[USER@]HOST`, as ssh takes it.
    pub destination: String,
    /// Port of the ssh server; ssh's default otherwise.
    pub port: Option<u16>,
    /// Private key.
    pub identity: Option<PathBuf>,
    /// Configuration of ssh instead of the user's.
    pub ssh_config: Option<PathBuf>,
    /// Folder of kinglet on the remote, absolute.
    pub dir: String,
    /// Folder of the unit on the remote, absolute.
    pub unit_dir: String,
    /// Program to deploy instead of one built now.
    pub binary: Option<PathBuf>,
    /// Model to deploy.
    pub model: Option<PathBuf>,
    /// Port of the service, where it is not decided yet.
    pub serve_port: Option<u16>,
    /// Words before the binary on the remote.
    pub runner: Vec<String>,
    /// Whether changes go through sudo.
    pub sudo: bool,
    /// Whether systemd is told.
    pub unit: bool,
    /// Whether to print only.
    pub dry_run: bool,
}

impl Options {
    /// Reads the words; `None` when help was asked for.
    ///
    /// # Errors
    /// An unknown or wrong word, with what would be right.
    pub fn parse(words: Vec<OsString>) -> Outcome<Option<Options>> {
        use lexopt::Arg::{Long, Value};
        use lexopt::ValueExt;
        let mut args = lexopt::Parser::from_args(words);
        let mut destination = None;
        let mut options = Options {
            destination: String::new(),
            port: None,
            identity: None,
            ssh_config: None,
            dir: "/opt/kinglet".into(),
            unit_dir: "/etc/systemd/system".into(),
            binary: None,
            model: None,
            serve_port: None,
            runner: Vec::new(),
            sudo: false,
            unit: true,
            dry_run: false,
        };
        while let Some(arg) = args.next()? {
            match arg {
                Value(word) if destination.is_none() => destination = Some(word.string()?),
                Long("port") => options.port = Some(port("--port", &args.value()?.string()?)?),
                Long("serve-port") => {
                    options.serve_port = Some(port("--serve-port", &args.value()?.string()?)?);
                }
                Long("identity") => options.identity = Some(args.value()?.into()),
                Long("ssh-config") => options.ssh_config = Some(args.value()?.into()),
                Long("dir") => options.dir = folder("--dir", args.value()?.string()?)?,
                Long("unit-dir") => options.unit_dir = folder("--unit-dir", args.value()?.string()?)?,
                Long("binary") => options.binary = Some(args.value()?.into()),
                Long("model") => options.model = Some(args.value()?.into()),
                Long("remote-runner") => options.runner = runner(&args.value()?.string()?)?,
                Long("sudo") => options.sudo = true,
                Long("no-unit") => options.unit = false,
                Long("dry-run") => options.dry_run = true,
                Long("help") => return Ok(None),
                other => return Err(other.unexpected().into()),
            }
        }
        let Some(destination) = destination else {
            return Err(Failure::usage(
                "deploy where? `cargo xtask deploy USER@HOST`; --help has the options",
            ));
        };
        options.destination = checked_destination(destination)?;
        options.files()?;
        Ok(Some(options))
    }

    /// The local files must be there before anything else is begun.
    fn files(&self) -> Outcome {
        let named = [
            ("--identity", &self.identity),
            ("--ssh-config", &self.ssh_config),
            ("--binary", &self.binary),
            ("--model", &self.model),
        ];
        for (option, path) in named {
            if let Some(path) = path
                && !path.is_file()
            {
                return Err(Failure::usage(format!("{option}: there is no file {}", path.display())));
            }
        }
        if let Some(path) = &self.model {
            model_name(path)?;
        }
        Ok(())
    }
}

/// The model's file name, which it keeps on the remote.
///
/// # Errors
/// A name that is hidden, or has other characters than letters, digits and `._+-`.
pub fn model_name(path: &Path) -> Outcome<String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !name.starts_with(['.', '-']) && is_word(&name, "._+-") {
        return Ok(name);
    }
    Err(Failure::usage(format!(
        "--model: rename '{name}': letters, digits and ._+- only, and no dot or dash at its beginning"
    )))
}

/// Whether `text` is not empty and has ASCII letters, digits and `more` only.
fn is_word(text: &str, more: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

fn checked_destination(text: String) -> Outcome<String> {
    let (user, host) = text.rsplit_once('@').unwrap_or(("", &text));
    let user_fits = !text.contains('@') || (is_word(user, "._-") && !user.starts_with('-'));
    // A leading dash would be an option of ssh.
    let host_fits = is_word(host, "._-:%") && !host.starts_with(['-', ':', '%', '.']);
    if user_fits && host_fits {
        return Ok(text);
    }
    Err(Failure::usage(format!("'{text}' is not USER@HOST: letters, digits, dots, dashes, underscores")))
}

fn port(option: &str, text: &str) -> Outcome<u16> {
    let port = text.parse().ok().filter(|&port| port != 0);
    port.ok_or_else(|| Failure::usage(format!("{option} {text}: a number from 1 to 65535")))
}

/// An absolute path that means the same to sh, systemd and everybody else.
fn folder(option: &str, text: String) -> Outcome<String> {
    let path = text.strip_suffix('/').unwrap_or(&text);
    let named = |part: &str| is_word(part, "._-") && !matches!(part, "." | "..") && !part.starts_with('-');
    if path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(named)) {
        return Ok(path.to_owned());
    }
    Err(Failure::usage(format!(
        "{option} '{text}': an absolute path of letters, digits and ._- without '..', other than /"
    )))
}

fn runner(text: &str) -> Outcome<Vec<String>> {
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let first_fits = words.first().is_some_and(|word| !word.starts_with('-'));
    if first_fits && words.iter().all(|word| is_word(word, "._-/=,:+")) {
        return Ok(words);
    }
    Err(Failure::usage(format!(
        "--remote-runner '{text}': a program and its words, of letters, digits and ._-/=,:+"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Outcome<Options> {
        let words = words.iter().map(OsString::from).collect();
        Options::parse(words).map(|options| options.expect("help was not asked for"))
    }

    /// Words of a shell, of ssh and of systemd that must go no further than this file.
    const HOSTILE: [&str; 12] =
        ["", " ", "a b", "a;b", "$(id)", "`id`", "a'b", "a\"b", "a\nb", "a|b", "a\\b", "é"];

    #[test]
    fn destinations() {
        for good in ["board", "root@board", "a.b-c_1@10.0.0.7", "pi@fe80::1%eth0", "pi@board.local"] {
            assert_eq!(parse(&[good]).unwrap().destination, good);
        }
        let more = ["-oProxyCommand=x", "root@-x", "@board", "root@", "a@b@c", "root@:1", "-l@board"];
        for bad in HOSTILE.iter().chain(&more) {
            assert_eq!(parse(&["--", bad]).unwrap_err().code, 2, "{bad:?}");
            assert!(checked_destination(format!("root@{bad}")).is_err() || *bad == "board", "{bad:?}");
        }
        assert!(parse(&[]).unwrap_err().message.contains("USER@HOST"));
        assert_eq!(parse(&["a", "b"]).unwrap_err().code, 2);
    }

    #[test]
    fn folders() {
        let dir = |text: &str| parse(&["board", "--dir", text]).map(|options| options.dir);
        assert_eq!(dir("/opt/k-1.0_x/").unwrap(), "/opt/k-1.0_x");
        for bad in ["/", "//", "opt", "/a/../b", "/a//b", "/a/./b", "/a/-rf", "/a%n", "~/a"] {
            assert_eq!(dir(bad).unwrap_err().code, 2, "{bad:?}");
        }
        for bad in HOSTILE {
            assert!(dir(&format!("/opt/{bad}")).is_err_and(|f| f.code == 2) || bad.is_empty(), "{bad:?}");
            assert!(folder("--unit-dir", format!("/{bad}")).is_err(), "{bad:?}");
        }
        let defaults = parse(&["board"]).unwrap();
        assert_eq!((&*defaults.dir, &*defaults.unit_dir), ("/opt/kinglet", "/etc/systemd/system"));
        assert!(defaults.unit && !defaults.sudo && !defaults.dry_run);
    }

    #[test]
    fn ports_and_runners() {
        assert_eq!(parse(&["board", "--port", "2222"]).unwrap().port, Some(2222));
        for bad in ["0", "65536", "ssh", "-1", ""] {
            assert_eq!(port("--port", bad).unwrap_err().code, 2, "{bad:?}");
        }
        assert_eq!(runner("qemu-aarch64 -cpu cortex-a76").unwrap(), ["qemu-aarch64", "-cpu", "cortex-a76"]);
        for bad in ["", " ", "-x", "a; b", "a $(b)", "a 'b'", "a > b", "%i"] {
            assert_eq!(runner(bad).unwrap_err().code, 2, "{bad:?}");
        }
    }

    #[test]
    fn files_are_looked_for_first_and_models_have_plain_names() {
        for option in ["--model", "--binary", "--identity", "--ssh-config"] {
            let failure = parse(&["board", option, "no/such/file"]).unwrap_err();
            assert!(failure.code == 2 && failure.message.contains(option), "{failure}");
        }
        assert_eq!(model_name(Path::new("x y/qwen2.5-0.5b_q4+k.gguf")).unwrap(), "qwen2.5-0.5b_q4+k.gguf");
        for bad in HOSTILE.iter().chain(&[".hidden", "-m.gguf", "a%b", ".."]) {
            assert_eq!(model_name(Path::new(bad)).unwrap_err().code, 2, "{bad:?}");
        }
    }

    #[test]
    fn help_names_every_option() {
        assert_eq!(Options::parse(vec!["--help".into()]).unwrap(), None);
        let options = "model serve-port dir sudo no-unit unit-dir binary port identity ssh-config \
                       remote-runner dry-run";
        for option in options.split_whitespace() {
            assert!(HELP.contains(&format!("\n  --{option} ")), "{option}");
        }
    }
}
