//! The program's logger: one lock, one frame at a time, one system call per frame.
//!
//! A frame is written when it is complete, so that a program that is killed leaves whole frames. Nothing
//! here allocates. Without `--trace` frames are made and dropped.
#![allow(unsafe_code)]

use crate::failure::Failure;
use crate::loader::{io_fault, same_file};
use core::cell::UnsafeCell;
use defmt::Encoder;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Instant;

/// Bytes of a frame that are kept; longer ones go to the file in parts.
const FRAME_BYTES: usize = 128;

/// A frame in the making, and where it goes.
struct Sink {
    encoder: Encoder,
    frame: [u8; FRAME_BYTES],
    len: usize,
    file: Option<File>,
    path: Option<PathBuf>,
    /// Why the file ends early.
    fault: Option<io::Error>,
}

static SINK: Mutex<Sink> = Mutex::new(Sink {
    encoder: Encoder::new(),
    frame: [0; FRAME_BYTES],
    len: 0,
    file: None,
    path: None,
    fault: None,
});

/// When the file was opened.
static START: OnceLock<Instant> = OnceLock::new();

/// The lock on [`SINK`] between `acquire` and `release`, which are calls of their own.
struct Held(UnsafeCell<Option<MutexGuard<'static, Sink>>>);

// SAFETY: touched only by the thread that has locked SINK: `acquire` first locks and then stores, `write`
// and `release` are called by the same thread after `acquire` (defmt's promise), and `release` takes the
// guard out before it unlocks. So no two threads are here at once, and a guard is dropped where it was made.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

fn lock() -> MutexGuard<'static, Sink> {
    // What a panic may have left is a frame that is not complete; the next one begins anew.
    SINK.lock().unwrap_or_else(|e| e.into_inner())
}

#[defmt::global_logger]
struct Frames;

// SAFETY: `acquire` waits until no other thread holds the logger, and `release` lets the next one in.
// Writing a frame logs nothing, so that no thread waits for itself.
unsafe impl defmt::Logger for Frames {
    fn acquire() {
        let mut sink = lock();
        sink.begin();
        // SAFETY: the lock is ours (see `Held`).
        unsafe { *HELD.0.get() = Some(sink) };
    }

    unsafe fn flush() {
        // Every frame is written when it is complete.
    }

    unsafe fn write(bytes: &[u8]) {
        // SAFETY: this thread has called `acquire` (see `Held`).
        if let Some(sink) = unsafe { &mut *HELD.0.get() } {
            sink.put(bytes);
        }
    }

    unsafe fn release() {
        // SAFETY: this thread has called `acquire` (see `Held`).
        let sink = unsafe { (*HELD.0.get()).take() };
        if let Some(mut sink) = sink {
            sink.end();
        }
    }
}

// Read while the logger is held, so that a file's times never go back.
defmt::timestamp!("{=u64:us}", START.get().map_or(0, |start| start.elapsed().as_micros() as u64));

impl Sink {
    fn begin(&mut self) {
        self.len = 0;
        let Sink { encoder, frame, len, file, fault, .. } = self;
        encoder.start_frame(|bytes| keep(bytes, frame, len, file, fault));
    }

    fn put(&mut self, data: &[u8]) {
        let Sink { encoder, frame, len, file, fault, .. } = self;
        encoder.write(data, |bytes| keep(bytes, frame, len, file, fault));
    }

    fn end(&mut self) {
        let Sink { encoder, frame, len, file, fault, .. } = self;
        encoder.end_frame(|bytes| keep(bytes, frame, len, file, fault));
        write(frame, len, file, fault);
    }
}

/// Puts encoded bytes behind those of the frame that are there.
fn keep(
    bytes: &[u8],
    frame: &mut [u8; FRAME_BYTES],
    len: &mut usize,
    file: &mut Option<File>,
    fault: &mut Option<io::Error>,
) {
    for &byte in bytes {
        if *len == FRAME_BYTES {
            write(frame, len, file, fault);
        }
        frame[*len] = byte;
        *len += 1;
    }
}

/// Writes what is kept. After a fault nothing more is written: a gap would go unnoticed.
fn write(frame: &[u8; FRAME_BYTES], len: &mut usize, file: &mut Option<File>, fault: &mut Option<io::Error>) {
    if let Some(to) = file
        && let Err(e) = to.write_all(&frame[..*len])
    {
        *fault = Some(e);
        *file = None;
    }
    *len = 0;
}

/// From now on frames go to `path`, which must not be the `model`: emptying a file that is mapped would
/// kill this program and cost the user the model.
///
/// # Errors
/// The file cannot be made.
pub fn open(path: &Path, model: &Path) -> Result<(), Failure> {
    if same_file(path, model) {
        return Err(Failure::file(path, "is the model itself; name another file to write to"));
    }
    let file = File::create(path).map_err(|e| Failure::file(path, io_fault(&e)))?;
    START.get_or_init(Instant::now);
    let mut sink = lock();
    sink.file = Some(file);
    sink.path = Some(path.to_path_buf());
    Ok(())
}

/// What kept the file from being complete.
pub fn finish() -> Option<Failure> {
    let mut sink = lock();
    let fault = sink.fault.take()?;
    let path = sink.path.take()?;
    Some(Failure::file(&path, format_args!("the trace ends early: {}", io_fault(&fault))))
}
