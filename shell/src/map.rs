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

/// A multiple of all page sizes that kernels are built with.
const ANY_PAGE: usize = 64 << 10;

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

/// Has the kernel read a mapped file into its cache and map its pages, from a thread of its own, as fast
/// as the medium gives: the first tokens of a process then do not wait for one page after the other. The
/// prefetches of our matrix products need it too: the CPU drops one whose page is not mapped yet.
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
            // SAFETY: as above. Linux before 5.14 does not know it; then pages are mapped at their first use.
            unsafe { libc::madvise(start, piece.len(), libc::MADV_POPULATE_READ) };
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

/// Gives the whole pages of `values` back to the system until they are used again. What is in them is lost:
/// in a region, zeros take its place.
pub fn give_back(values: &mut [f32]) {
    let bytes = size_of_val(values);
    let start = values.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(ANY_PAGE);
    let len = bytes.saturating_sub(skip) / ANY_PAGE * ANY_PAGE;
    if len > 0 {
        // SAFETY: the range begins and ends within `values` (`skip + len <= bytes`), whose borrow is
        // exclusive: nobody else reads or writes it meanwhile. The pages stay mapped; what is read from them
        // later is zero, or for a mapped file what is in the file, and any bytes are a valid f32. If the
        // kernel refuses, nothing has happened.
        unsafe { libc::madvise(start.wrapping_add(skip).cast(), len, libc::MADV_DONTNEED) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::resident;
    use kinglet_core::cast::view_mut;

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
    fn pages_are_given_back_and_come_anew() {
        let values: &mut [f32] = view_mut(region(64 << 20).unwrap()).unwrap();
        values.fill(1.0);
        let before = resident().unwrap();
        let last = values.len() - 1;
        // An odd part: its first and last pages are others' too.
        give_back(&mut values[1..last]);
        let freed = before.saturating_sub(resident().unwrap());
        assert!(freed > 32 << 20, "{freed} bytes");
        assert_eq!((values[0], values[last], values[last / 2]), (1.0, 1.0, 0.0));
        values.fill(2.0);
        assert!(values.iter().all(|&value| value == 2.0));
        // Less than a page: left alone.
        give_back(&mut values[..3]);
        give_back(&mut []);
        assert_eq!(values[0], 2.0);
    }

    #[test]
    fn a_region_beyond_the_address_space_is_an_error() {
        assert!(region(usize::MAX - 5).is_err());
        assert!(region(1 << 60).is_err());
    }
}
