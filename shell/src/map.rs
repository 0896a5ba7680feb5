//! Memory maps: the model file, read-only, and the engine's regions. Must not know what is in them.
#![allow(unsafe_code)]

use crate::thread::Thread;
use kinglet_core::cast::REGION_ALIGN;
use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::io;

/// Size of a huge page on aarch64 (4 KiB granule) and x86-64.
const HUGE_PAGE: usize = 2 << 20;

const _: () = assert!(HUGE_PAGE.is_multiple_of(REGION_ALIGN));

/// Maps a file for as long as the process lives.
///
/// # Errors
/// The file cannot be mapped (an empty one, for example).
pub fn file(file: &File) -> io::Result<&'static [u8]> {
    // SAFETY: the map is private and read-only. Bytes that another process changes in the file while we
    // run can be seen; that is so for every program that maps its model, cannot be prevented without
    // copying it, and is stated in the user's documentation. The parser checks bytes before use.
    let map = unsafe { MmapOptions::new().map_copy_read_only(file)? };
    let map: &'static Mmap = Box::leak(Box::new(map));
    Ok(map)
}

/// Has the kernel read a mapped file into its cache, from a thread of its own, as fast as the medium gives:
/// the first tokens of a process then do not wait for one page after the other.
pub fn read_ahead(bytes: &'static [u8]) {
    /// Small enough that the process ends at once when it is told to.
    const PIECE: usize = 8 << 20;
    let body = move || {
        for piece in bytes.chunks(PIECE) {
            // A map begins at a page, and so do its pieces.
            let start = piece.as_ptr().cast_mut().cast();
            // SAFETY: advice that changes no contents; the kernel checks the range.
            if unsafe { libc::madvise(start, piece.len(), libc::MADV_WILLNEED) } != 0 {
                break;
            }
        }
    };
    // Without a thread nothing is lost but time.
    let _ = Thread::start(String::from("kinglet-ahead"), Box::new(body));
}

/// A zeroed region of `len` bytes for as long as the process lives; pages come at first touch.
///
/// # Errors
/// The address space or the limits of the process do not allow it.
pub fn region(len: usize) -> io::Result<&'static mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    // Huge pages need addresses that are multiples of their size; older kernels do not see to it.
    let slack = if len >= HUGE_PAGE { HUGE_PAGE } else { 0 };
    let whole = len.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
    let map: &'static mut MmapMut = Box::leak(Box::new(MmapMut::map_anon(whole)?));
    if slack > 0 {
        // Advice: without it everything works, a little slower.
        let _ = map.advise(Advice::HugePage);
    }
    let skip = if slack > 0 { map.as_ptr().align_offset(HUGE_PAGE).min(slack) } else { 0 };
    Ok(&mut map[skip..skip + len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_aligned_and_as_long_as_asked() {
        for len in [0, 1, 4097, HUGE_PAGE, 3 * HUGE_PAGE + 5] {
            let region = region(len).unwrap();
            assert_eq!(region.len(), len);
            assert!(len == 0 || region.as_ptr().addr().is_multiple_of(REGION_ALIGN));
            assert!(len < HUGE_PAGE || region.as_ptr().addr().is_multiple_of(HUGE_PAGE));
            assert!(region.iter().all(|&b| b == 0));
        }
    }

    #[test]
    fn a_region_beyond_the_address_space_is_an_error() {
        assert!(region(usize::MAX - 5).is_err());
        assert!(region(1 << 60).is_err());
    }
}
