//! The folder of a fingerprint: made, described, and compared with those of other models. Must not know
//! blocks.

use super::medium::{Entry, Errno, IoError, Medium};
use super::names::{self, ABOUT, IDENTITY, Name};
use super::shared::{Shared, Trouble, read_small, replace};
use super::status::Pause;
use core::fmt::Write;
use kinglet_core::kv::file::{IDENTITY_FILE_BYTES, decode_identity, encode_identity};
use kinglet_core::kv::{BlockId, Identity};

/// Folders of other models that are compared with ours.
const OTHERS_MOST: usize = 3;

/// Sees to it that the folder is there and described; whether it is new. `n` as in [`names::temporary`].
pub fn prepare(shared: &Shared, n: &mut dyn FnMut() -> u64) -> Result<bool, Trouble> {
    let (medium, fingerprint) = (&*shared.medium, &shared.fingerprint);
    let folder = names::folder(fingerprint);
    let new = match medium.meta(folder.as_str()) {
        Ok(meta) if meta.entry == Entry::Directory => false,
        Ok(_) => return Err(Trouble { name: folder, why: Pause::InTheWay }),
        Err(IoError(Errno::NOENT)) => make_dir(medium, &folder)?,
        Err(error) => return Err(Trouble::io(&folder)(error)),
    };
    let identity = names::beside(fingerprint, IDENTITY);
    if read_identity(medium, &identity) != Some(shared.identity) {
        replace(medium, &identity, &encode_identity(&shared.identity), n())?;
    }
    let about = names::beside(fingerprint, ABOUT);
    if medium.meta(about.as_str()) == Err(IoError(Errno::NOENT)) {
        replace(medium, &about, shared.about.as_bytes(), n())?;
    }
    Ok(new)
}

/// Makes a directory; whether it was not there.
pub fn make_dir(medium: &dyn Medium, name: &Name) -> Result<bool, Trouble> {
    match medium.make_dir(name.as_str()) {
        Ok(()) => Ok(true),
        Err(IoError(Errno::EXIST)) => Ok(false),
        Err(error) => Err(Trouble::io(name)(error)),
    }
}

fn read_identity(medium: &dyn Medium, name: &Name) -> Option<Identity> {
    // One byte more, so that a file that is too long is seen.
    let mut file = [0; IDENTITY_FILE_BYTES + 1];
    decode_identity(read_small(medium, name, &mut file).ok()?).ok()
}

/// Says of the model whose caches are there and differ least why they are not used.
pub fn compare(shared: &Shared) {
    let medium = &*shared.medium;
    let mut others = [BlockId::default(); OTHERS_MOST];
    let mut len = 0;
    // What cannot be listed will be complained about when it is counted.
    let _ = medium.list("", &mut |name| {
        if let Some(other) = names::parse_folder(name).filter(|other| *other != shared.fingerprint) {
            others[len] = other;
            len += 1;
        }
        len < others.len()
    });
    let mut nearest: Option<(usize, BlockId, Identity)> = None;
    for other in &others[..len] {
        let Some(identity) = read_identity(medium, &names::beside(other, IDENTITY)) else { continue };
        let mut count = 0;
        shared.identity.differences(&identity, &mut |_| count += 1);
        if nearest.is_none_or(|(least, ..)| count < least) {
            nearest = Some((count, *other, identity));
        }
    }
    let Some((_, other, identity)) = nearest else { return };
    let mut parts = String::new();
    shared.identity.differences(&identity, &mut |part| {
        let comma = if parts.is_empty() { "" } else { ", " };
        let _ = write!(parts, "{comma}{part}");
    });
    let (dir, name) = (shared.dir(), names::folder(&other));
    let short = name.as_str().get(..8).unwrap_or("");
    shared
        .lines
        .say(format_args!("cache of another model in {dir}/{short}..: not used, differs in: {parts}"));
}
