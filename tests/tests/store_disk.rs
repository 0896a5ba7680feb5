//! The store on a real file system.

use core::time::Duration;
use kinglet::failure::Failure;
use kinglet::store::medium::{Errno, IoError};
use kinglet::store::{BACK_OFF, Disk, Found, Medium, Options, Outcome, Pause, Store};
use kinglet_tests::chain::{
    Heard, Piece, chain, find, follow, found, identity, open, open_quiet, options, save, save_all, until,
};
use kinglet_tests::medium::Shifted;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A directory for one test, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kinglet-store-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    /// The store's directory, which is not there yet.
    fn dir(&self) -> PathBuf {
        self.0.join("a").join("cache")
    }

    fn disk(&self) -> Arc<Shifted<Disk>> {
        Arc::new(Shifted::new(Disk::open(&self.dir()).unwrap()))
    }

    fn path(&self, piece: &Piece) -> PathBuf {
        self.dir().join(piece.path())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All paths below, with what they are.
fn below(path: &Path) -> Vec<(PathBuf, fs::Metadata)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        all.push((path.clone(), meta.clone()));
        if meta.is_dir() {
            all.extend(below(&path));
        }
    }
    all
}

/// Lets the back-off pass, and waits until a block may be tried.
fn wait_for_trial(disk: &Shifted<Disk>, store: &Store) {
    disk.pass(BACK_OFF);
    until("a trial", || {
        store.flush(Duration::ZERO);
        store.room()
    });
}

#[test]
fn files_are_for_us_alone() {
    let (folder, pieces) = (Folder::new("modes"), chain(1, 3, 7));
    let options = Options { dir: folder.dir(), ..options(&Heard::default()) };
    let store = Store::on_disk(options, identity(), String::from("made up\n"), 4).unwrap();
    save_all(&store, &pieces);
    assert_eq!(
        store.file(&pieces[0].parent, &pieces[0].contents).to_string(),
        folder.path(&pieces[0]).to_str().unwrap()
    );
    drop(store);
    let all = below(&folder.0.join("a"));
    // Four files of blocks, two that describe them, one folder each for the first bytes of ids.
    assert_eq!(all.iter().filter(|(_, meta)| meta.is_file()).count(), 6);
    for (path, meta) in &all {
        let mode = if meta.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(meta.permissions().mode() & 0o7777, mode, "{}", path.display());
    }
    let about = folder.dir().join(identity().fingerprint().to_string()).join("about");
    assert_eq!(fs::read(about).unwrap(), b"made up\n");
    let store = open_quiet(&folder.disk());
    assert_eq!(found(&store, &pieces), 4);
    let meta = fs::metadata(folder.path(&pieces[3])).unwrap();
    assert_eq!((meta.mtime_nsec(), meta.len()), (1, pieces[3].file_bytes()), "used once");
    assert_eq!(find(&store, &pieces[3]), Found::Hit);
    assert_eq!(fs::metadata(folder.path(&pieces[3])).unwrap().mtime_nsec(), 2);
}

#[test]
fn damage_is_set_aside() {
    let (folder, pieces) = (Folder::new("damage"), chain(1, 1, 9));
    let store = open_quiet(&folder.disk());
    save_all(&store, &pieces);
    for piece in &pieces {
        let path = folder.path(piece);
        let sound = fs::read(&path).unwrap();
        for len in [0, 1, 4095, 4096, 4097, sound.len() - 1] {
            fs::write(&path, &sound[..len]).unwrap();
            assert_eq!((find(&store, piece), find(&store, piece)), (Found::Bad, Found::Miss));
            let bad = format!("{}.bad", path.display());
            assert_eq!(fs::read(bad).unwrap(), sound[..len]);
            save_all(&store, core::slice::from_ref(piece));
            assert_eq!(fs::read(&path).unwrap(), sound);
        }
    }
}

#[test]
fn planted_links_and_pipes() {
    let (folder, pieces) = (Folder::new("links"), chain(1, 2, 9));
    let outside = folder.0.join("outside");
    fs::create_dir(&outside).unwrap();
    let secret = outside.join("secret");
    let store = open_quiet(&folder.disk());
    save_all(&store, &pieces);
    let sound = fs::read(folder.path(&pieces[0])).unwrap();
    // A sound block behind a link is not read either: what is behind it is none of ours.
    fs::write(&secret, &sound).unwrap();
    for piece in &pieces {
        let (path, bad) =
            (folder.path(piece), PathBuf::from(format!("{}.bad", folder.path(piece).display())));
        for read in [true, false] {
            for pipe in [true, false] {
                fs::remove_file(&path).unwrap();
                let _ = fs::remove_file(&bad);
                if pipe {
                    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
                } else {
                    symlink(&secret, &path).unwrap();
                }
                if read {
                    assert_eq!(find(&store, piece), Found::Bad);
                }
                save_all(&store, core::slice::from_ref(piece));
                assert!(fs::symlink_metadata(&path).unwrap().is_file());
                assert!(!fs::symlink_metadata(&bad).unwrap().is_file(), "it is still there");
                assert_eq!(find(&store, piece), Found::Hit);
            }
        }
    }
    // A folder of blocks that is a link: nothing is found in it, nothing is written.
    let heard = Heard::default();
    let store = open(options(&heard), &folder.disk());
    let aa = folder.path(&pieces[0]).parent().unwrap().to_path_buf();
    fs::rename(&aa, outside.join("aa")).unwrap();
    symlink(outside.join("aa"), &aa).unwrap();
    assert_eq!(find(&store, &pieces[0]), Found::Miss);
    assert_eq!(save(&store, &pieces[..1]), [Outcome::Later]);
    assert_eq!(heard.with("paused").len(), 1);
    let names: Vec<_> = below(&outside).into_iter().map(|(path, _)| path).collect();
    assert!(names.contains(&outside.join("aa").join(folder.path(&pieces[0]).file_name().unwrap())));
    assert!(names.iter().all(|path| path.extension().is_none_or(|end| end != "tmp")));
    assert_eq!(fs::read(&secret).unwrap(), sound);
}

#[test]
fn directories_that_cannot_be() {
    let folder = Folder::new("names");
    let line = |path: PathBuf| match Disk::open(&path) {
        Err(Failure::Failed(line)) => line,
        other => panic!("{other:?}"),
    };
    let long = folder.0.join("n".repeat(300));
    assert!(line(long.clone()).contains(&long.display().to_string()));
    assert!(line(folder.0.join(PathBuf::from_iter(["deep"; 2000]))).contains("deep"));
    fs::write(folder.0.join("file"), b"x").unwrap();
    assert!(line(folder.0.join("file")).contains("file"));
    assert!(line(folder.0.join("file").join("below")).contains("below"));
    // As long as it may be is no trouble.
    let pieces = chain(1, 1, 3);
    let long = (0..15).fold(folder.0.clone(), |path, _| path.join("n".repeat(250)));
    let store = open_quiet(&Arc::new(Disk::open(&long).unwrap()));
    save_all(&store, &pieces);
    assert_eq!(found(&store, &pieces), 2);
    // A link to a directory is the user's own choice.
    fs::create_dir(folder.0.join("real")).unwrap();
    symlink(folder.0.join("real"), folder.0.join("link")).unwrap();
    let store = open_quiet(&Arc::new(Disk::open(&folder.0.join("link")).unwrap()));
    save_all(&store, &pieces);
    assert_eq!(below(&folder.0.join("real")).iter().filter(|(_, meta)| meta.is_file()).count(), 4);
}

#[test]
fn the_directory_is_deleted_and_comes_back() {
    let (folder, pieces, heard) = (Folder::new("deleted"), chain(1, 2, 0), Heard::default());
    let disk = folder.disk();
    let store = open(options(&heard), &disk);
    save_all(&store, &pieces);
    fs::remove_dir_all(folder.dir()).unwrap();
    assert_eq!(found(&store, &pieces), 0);
    assert_eq!(save(&store, &pieces), [Outcome::Later; 2]);
    assert_eq!(store.status().paused, Some(Pause::Io(IoError(Errno::NOENT))));
    wait_for_trial(&disk, &store);
    assert_eq!(save(&store, &pieces[..1]), [Outcome::Later]);
    // It is not made again: it may be the place of a medium that was taken away.
    assert!(!folder.dir().exists());
    fs::create_dir(folder.dir()).unwrap();
    wait_for_trial(&disk, &store);
    save_all(&store, &pieces[..1]);
    save_all(&store, &pieces[1..]);
    assert_eq!((found(&store, &pieces), store.status().paused), (2, None));
    assert_eq!((heard.with("paused").len(), heard.with("saving again").len()), (1, 1));
    // Moved, it is still the one that was opened.
    fs::rename(folder.dir(), folder.0.join("moved")).unwrap();
    assert_eq!(found(&store, &pieces), 2);
    let more = follow(pieces[1].id(), 2, 5, 1, 0);
    save_all(&store, &more);
    assert_eq!(found(&store, &more), 1);
}

#[test]
fn thousands_of_foreign_files() {
    let (folder, pieces, heard) = (Folder::new("foreign"), chain(1, 3, 7), Heard::default());
    let ours = folder.dir().join(identity().fingerprint().to_string()).join("00");
    fs::create_dir_all(&ours).unwrap();
    for i in 0..10_000 {
        let at = if i % 2 == 0 { folder.dir() } else { ours.clone() };
        fs::write(at.join(format!("{i}-and-a-name-that-takes-some-room.kv")), b"").unwrap();
    }
    let limited = Options { max_files: 5, ..options(&heard) };
    let store = open(limited, &folder.disk());
    until("the count", || store.status().files == Some(0));
    save_all(&store, &chain(2, 4, 0));
    save_all(&store, &pieces);
    assert_eq!((found(&store, &pieces), store.status().files), (4, Some(5)));
    let foreign = |path: &Path| fs::read_dir(path).unwrap().count();
    assert!(foreign(&folder.dir()) == 5001 && foreign(&ours) >= 5000);
    assert_eq!(heard.with("paused"), [""; 0]);
}

/// Two stores with a directory handle each, as two processes have them.
#[test]
fn two_processes_save_and_read_at_once() {
    let folder = Folder::new("two");
    let common = chain(1, 12, 9);
    std::thread::scope(|scope| {
        for seed in [2, 3] {
            let (folder, common) = (&folder, &common);
            scope.spawn(move || {
                let store = open_quiet(&folder.disk());
                let own = follow(common[11].id(), 12, seed, 12, 5);
                std::thread::scope(|scope| {
                    scope.spawn(|| until("all", || found(&store, common) >= 12 && found(&store, &own) >= 12));
                    save_all(&store, common);
                    save_all(&store, &own);
                });
                assert_eq!(store.status().bad, 0);
            });
        }
    });
    let store = open_quiet(&folder.disk());
    assert_eq!(found(&store, &common), 13);
    for seed in [2, 3] {
        assert_eq!(found(&store, &follow(common[11].id(), 12, seed, 12, 5)), 13);
    }
    assert!(below(&folder.dir()).iter().all(|(path, _)| path.extension().is_none_or(|end| end != "tmp")));
}

/// A file system of one megabyte, which fills up and becomes read-only. Who has no right to mount one has to
/// do with the medium that refuses in `store_refusals.rs`; who has it, as root has, must get one, unless a
/// container's rules forbid it all the same.
#[test]
fn a_small_file_system() {
    let (folder, heard) = (Folder::new("small"), Heard::default());
    fs::create_dir_all(folder.dir()).unwrap();
    let mounted = match Mounted::new(&folder.dir()) {
        Ok(mounted) => mounted,
        Err(said) => {
            let forbidden = ["denied", "not permitted"].iter().any(|word| said.contains(word));
            assert!(forbidden || !may_mount(), "a tmpfs cannot be mounted: {said}");
            return eprintln!(
                "a tmpfs may not be mounted here; only the medium in memory was full and read-only: {said}"
            );
        }
    };
    let disk = folder.disk();
    let store = open(options(&heard), &disk);
    let pieces = chain(1, 300, 0);
    let outcomes = save(&store, &pieces);
    let saved = outcomes.iter().take_while(|outcome| **outcome == Outcome::Saved).count();
    assert!(saved > 50 && saved < 200, "{saved}");
    assert_eq!(store.status().paused, Some(Pause::Io(IoError(Errno::NOSPC))));
    assert_eq!(found(&store, &pieces), saved);
    assert!(below(&folder.dir()).iter().all(|(path, _)| path.extension().is_none_or(|end| end != "tmp")));
    // Room is made.
    pieces[..2].iter().for_each(|piece| fs::remove_file(folder.path(piece)).unwrap());
    wait_for_trial(&disk, &store);
    save_all(&store, &pieces[..1]);
    assert_eq!((store.status().paused, heard.with("saving again").len()), (None, 1));
    assert!(mounted.remount("ro"));
    assert_eq!(save(&store, &pieces[1..2]), [Outcome::Later]);
    assert_eq!(store.status().paused, Some(Pause::Io(IoError(Errno::ROFS))));
    assert_eq!(found(&store, &pieces), 1);
    assert_eq!(found(&store, &pieces[2..saved]), saved - 2);
    assert!(mounted.remount("rw"));
    wait_for_trial(&disk, &store);
    save_all(&store, &pieces[1..2]);
    assert_eq!((found(&store, &pieces), heard.with("paused").len()), (saved, 2));
    // The files must be closed before it can be unmounted.
    drop(store);
    drop(disk);
    drop(mounted);
}

/// Whether this process has Linux's capability CAP_SYS_ADMIN, number 21.
fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> 21 & 1 != 0
}

/// A mounted file system.
struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one there; else what `mount` said.
    fn new(path: &Path) -> Result<Mounted, String> {
        let mut mount = Command::new("mount");
        mount.env("LC_ALL", "C").args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"]).arg(path);
        let output = mount.output().map_err(|e| e.to_string())?;
        match output.status.success() {
            true => Ok(Mounted(path.to_path_buf())),
            false => Err(String::from_utf8_lossy(&output.stderr).trim_end().to_string()),
        }
    }

    fn remount(&self, how: &str) -> bool {
        Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status().unwrap().success()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The clocks of a disk go forwards.
#[test]
fn clocks() {
    let folder = Folder::new("clocks");
    let disk = Disk::open(&folder.dir()).unwrap();
    assert!(disk.now().seconds > 1_700_000_000 && disk.now().nanos < 1_000_000_000);
    let before = disk.monotonic();
    until("the clock", || disk.monotonic() > before);
}
