//! Semihosting: the emulator's files, its command line, and the way out.
#![allow(unsafe_code)]

use core::arch::asm;

const SYS_OPEN: usize = 0x01;
const SYS_READ: usize = 0x06;
const SYS_FLEN: usize = 0x0c;
const SYS_GET_CMDLINE: usize = 0x15;
const SYS_EXIT: usize = 0x18;
/// Reason of an exit that has a code.
const APPLICATION_EXIT: usize = 0x20026;
/// Mode "rb".
const READ_BINARY: usize = 1;

/// Why a file was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// It cannot be opened, or its length is not known.
    Open,
    /// It does not fit.
    TooLarge {
        /// Bytes of the file.
        bytes: usize,
    },
    /// The emulator gave fewer bytes than the file has.
    Short,
}

/// # Safety
/// `block` is what the operation asks for, and so are the addresses in it.
unsafe fn call(operation: usize, block: &mut [usize]) -> isize {
    let result;
    // SAFETY: by the caller's promise the emulator reads and writes only what the block names.
    unsafe {
        asm!(
            "hlt #0xf000",
            inlateout("x0") operation => result,
            in("x1") block.as_mut_ptr(),
            options(nostack),
        );
    }
    result
}

/// The words after `-semihosting-config`'s `arg=`, separated by blanks; `None` if they do not fit.
pub fn command_line(buffer: &mut [u8]) -> Option<&str> {
    let mut block = [buffer.as_mut_ptr().expose_provenance(), buffer.len()];
    // SAFETY: a buffer and its length, which the emulator replaces by the text's length.
    let done = unsafe { call(SYS_GET_CMDLINE, &mut block) };
    let len = block[1];
    let text = buffer.get(..len).filter(|_| done == 0)?;
    core::str::from_utf8(text).ok().map(|t| t.trim_end_matches('\0'))
}

/// Reads a whole file to the front of `buffer`; its bytes.
///
/// # Errors
/// See [`ReadError`].
pub fn read<'b>(name: &str, buffer: &'b mut [u8]) -> Result<&'b [u8], ReadError> {
    let mut path = [0u8; 256];
    // One byte less: the name ends with a zero.
    let fits = path[..255].get_mut(..name.len()).ok_or(ReadError::Open)?;
    fits.copy_from_slice(name.as_bytes());
    // SAFETY: a name that ends with a zero, the mode, and the name's length.
    let file = unsafe { call(SYS_OPEN, &mut [path.as_ptr().expose_provenance(), READ_BINARY, name.len()]) };
    let file = usize::try_from(file).map_err(|_| ReadError::Open)?;
    // SAFETY: the file is open. The emulator closes it at the end.
    let bytes = usize::try_from(unsafe { call(SYS_FLEN, &mut [file]) }).map_err(|_| ReadError::Open)?;
    let space = buffer.get_mut(..bytes).ok_or(ReadError::TooLarge { bytes })?;
    // SAFETY: `space` is exclusively ours and as long as the block says.
    let missing = unsafe { call(SYS_READ, &mut [file, space.as_mut_ptr().expose_provenance(), bytes]) };
    if missing == 0 { Ok(space) } else { Err(ReadError::Short) }
}

/// Ends the emulator with `code`.
pub fn exit(code: u32) -> ! {
    loop {
        // SAFETY: the reason and the code. It does not return; if it did, it is called again.
        unsafe { call(SYS_EXIT, &mut [APPLICATION_EXIT, code as usize]) };
    }
}
