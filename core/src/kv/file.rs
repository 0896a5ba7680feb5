//! A block's file, written and read through `embedded_io`.
//!
//! Knows the order of things in a file. Must not know names, folders or how a file becomes durable; see
//! `FORMAT.md`.

use super::header::HEADER_BYTES;
use super::identity::IDENTITY_BYTES;
use super::{Fault, Header, Identity, ReadError, WriteError, pack};
use embedded_io::{Read, Write};
use xxhash_rust::xxh3::xxh3_64;

// A block goes to its file and back as it is in memory.
const _: () = assert!(cfg!(target_endian = "little"), "block files are little-endian");

/// Writes the file of the block that `header` describes: `payload` is what [`pack::pack`] made of it, so a
/// whole block itself. Two calls of `write`, if the medium takes all. Puts the payload's checksum into
/// `header`.
///
/// # Errors
/// The medium's; [`Fault::PayloadBytes`] or [`Fault::Padding`] if the payload is not one of this header,
/// before anything is written.
pub fn encode<W: Write + ?Sized>(
    header: &mut Header,
    payload: &[u8],
    w: &mut W,
) -> Result<(), WriteError<W::Error>> {
    let page = page_of(header, payload)?;
    write_all(w, &page)?;
    write_all(w, payload)
}

/// Apart: the same for every medium.
fn page_of(header: &mut Header, payload: &[u8]) -> Result<[u8; HEADER_BYTES], Fault> {
    let (needed, found) = (header.payload_bytes(), payload.len() as u64);
    if needed != found {
        return Err(Fault::PayloadBytes { needed, found });
    }
    pack::check_padding(header.geometry(), header.count(), payload)?;
    header.payload_hash = xxh3_64(payload);
    Ok(header.to_bytes())
}

/// Reads a header.
///
/// # Errors
/// The medium's; a file too short, or any [`Fault`] of [`Header::from_bytes`].
#[cfg_attr(kinglet_small, optimize(size))]
pub fn read_header<R: Read + ?Sized>(r: &mut R) -> Result<Header, ReadError<R::Error>> {
    let mut page = [0; HEADER_BYTES];
    let got = fill(r, &mut page)? as u64;
    if got < HEADER_BYTES as u64 {
        return Err(Fault::Truncated { needed: HEADER_BYTES as u64, got }.into());
    }
    Ok(Header::from_bytes(&page)?)
}

/// Reads what follows `header` straight into `block`, the memory of a block, to the file's end. Of a tail,
/// positions that are not there become zero. After an error the contents of `block` are of no use.
///
/// # Errors
/// The medium's; a file too short or too long, a wrong checksum, bytes where no position is;
/// [`Fault::BlockBytes`] if `block` has another size, before anything is read.
#[cfg_attr(kinglet_small, optimize(size))]
pub fn decode<R: Read + ?Sized>(
    r: &mut R,
    header: &Header,
    block: &mut [u8],
) -> Result<(), ReadError<R::Error>> {
    let payload = room(header, block)?;
    let needed = payload.len() as u64;
    let got = fill(r, payload)? as u64;
    if got < needed {
        let before = HEADER_BYTES as u64;
        return Err(Fault::Truncated { needed: before + needed, got: before + got }.into());
    }
    if r.read(&mut [0]).map_err(ReadError::Medium)? != 0 {
        return Err(Fault::Trailing.into());
    }
    if xxh3_64(payload) != header.payload_hash {
        return Err(Fault::PayloadHash.into());
    }
    Ok(pack::unpack(header.geometry(), header.count(), block)?)
}

/// The front of a block's memory that takes the payload.
fn room<'b>(header: &Header, block: &'b mut [u8]) -> Result<&'b mut [u8], Fault> {
    let needed = pack::payload_bytes(header.geometry(), super::BLOCK_TOKENS);
    let got = block.len() as u64;
    if got != needed {
        return Err(Fault::BlockBytes { needed, got });
    }
    // Not longer than the block, so a length of this machine.
    Ok(&mut block[..header.payload_bytes() as usize])
}

/// Reads until `buf` is full or the file ends; gives the bytes read.
///
/// `embedded_io`'s own `read_exact` panics when a medium claims more bytes than fit.
fn fill<R: Read + ?Sized>(r: &mut R, buf: &mut [u8]) -> Result<usize, ReadError<R::Error>> {
    let mut got = 0;
    while let Some(rest) = buf.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match r.read(rest).map_err(ReadError::Medium)? {
            0 => break,
            n => got += n.min(rest.len()),
        }
    }
    Ok(got)
}

/// `embedded_io`'s own `write_all` panics when a medium takes nothing.
fn write_all<W: Write + ?Sized>(w: &mut W, mut bytes: &[u8]) -> Result<(), WriteError<W::Error>> {
    while !bytes.is_empty() {
        match w.write(bytes).map_err(WriteError::Medium)? {
            0 => return Err(WriteError::Full),
            n => bytes = bytes.get(n..).unwrap_or(&[]),
        }
    }
    Ok(())
}

/// First bytes of the file that says what the caches of a folder belong to.
pub const IDENTITY_MAGIC: [u8; 8] = *b"\x89KID\r\n\x1a\n";

/// Bytes of that file: magic, [`Identity::encode`], checksum of both.
pub const IDENTITY_FILE_BYTES: usize = 8 + IDENTITY_BYTES + 8;

/// The file that says what the caches of a folder belong to.
pub fn encode_identity(identity: &Identity) -> [u8; IDENTITY_FILE_BYTES] {
    let mut file = [0; IDENTITY_FILE_BYTES];
    file[..8].copy_from_slice(&IDENTITY_MAGIC);
    file[8..][..IDENTITY_BYTES].copy_from_slice(&identity.encode());
    let hash = xxh3_64(&file[..8 + IDENTITY_BYTES]);
    file[8 + IDENTITY_BYTES..].copy_from_slice(&hash.to_le_bytes());
    file
}

/// Reads such a file, given whole.
///
/// # Errors
/// [`Fault::Truncated`], [`Fault::Trailing`], [`Fault::Magic`], [`Fault::HeaderHash`]; [`Fault::KvType`] for
/// a KV type that is not known.
#[cfg_attr(kinglet_small, optimize(size))]
pub fn decode_identity(file: &[u8]) -> Result<Identity, Fault> {
    let needed = IDENTITY_FILE_BYTES as u64;
    let Some((file, after)) = file.split_first_chunk::<IDENTITY_FILE_BYTES>() else {
        return Err(Fault::Truncated { needed, got: file.len() as u64 });
    };
    if !after.is_empty() {
        return Err(Fault::Trailing);
    }
    if file[..8] != IDENTITY_MAGIC {
        return Err(Fault::Magic);
    }
    let (covered, hash) = file.split_at(8 + IDENTITY_BYTES);
    if xxh3_64(covered).to_le_bytes() != hash {
        return Err(Fault::HeaderHash);
    }
    let mut identity = [0; IDENTITY_BYTES];
    identity.copy_from_slice(&covered[8..]);
    let found = u32::from_le_bytes([identity[8], identity[9], identity[10], identity[11]]);
    Identity::decode(&identity).ok_or(Fault::KvType { found })
}
