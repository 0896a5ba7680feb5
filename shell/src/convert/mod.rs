//! Rewrites a model file to one weight type, tensor by tensor. Must not know engines.
//!
//! Matrices are widened with the core's dequantiser and quantised anew; vectors (norms, biases) stay
//! as they are. The file appears under its name only when all of it is on the disk.

pub mod header;
pub mod quantize;

use crate::failure::{Failure, printable};
use crate::loader::Model;
use crate::memory::megabytes;
use crate::signal;
use header::Planned;
use kinglet_core::gguf::TensorInfo;
use kinglet_core::quant::dequantize;
use quantize::{BLOCK_LEN, Target, quantize};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Weights widened at a time, unless a row has more: 4 MB.
const PIECE: usize = 1 << 20;
/// What llama.cpp writes as `general.quantization_version`.
const QUANTIZATION_VERSION: u32 = 2;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// Tensors of the new type.
    pub quantized: usize,
    /// Tensors that stayed as they were.
    pub kept: usize,
}

/// Writes `model` with all matrices as `target` to `out`. `progress` hears how many bytes are
/// written, and of how many.
///
/// # Errors
/// The model has no tensors or weights that `target` cannot hold; `out` exists and not `force`; the
/// file cannot be written; Ctrl-C. Nothing is left behind then.
pub fn rewrite(
    model: &Model,
    target: Target,
    out: &Path,
    force: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Written, Failure> {
    let plan: Vec<Planned<'_>> =
        header::in_directory_order(&model.gguf).into_iter().map(|t| planned(t, target)).collect();
    if plan.is_empty() {
        return Err(model.fail("has no tensors to convert (a vocabulary only?)"));
    }
    let set =
        [("general.file_type", target.file_type()), ("general.quantization_version", QUANTIZATION_VERSION)];
    let header = header::header(model.bytes, &model.gguf, &set, &plan).map_err(|e| model.fail(e))?;
    let align = model.gguf.alignment();
    let all = header.len() as u64 + plan.iter().map(|p| p.len.next_multiple_of(align)).sum::<u64>();

    let mut partial = Partial::create(out, force, all)?;
    partial.write(&header)?;
    let mut buffers = (Vec::new(), Vec::new());
    for planned in &plan {
        match planned.ggml_type {
            None => partial.write_in_pieces(planned.tensor.data(), progress)?,
            Some(_) => matrix(model, &planned.tensor, target, &mut partial, &mut buffers, progress)?,
        }
        let padding = planned.len.next_multiple_of(align) - planned.len;
        partial.write(&vec![0; padding as usize])?;
    }
    partial.finish()?;
    let quantized = plan.iter().filter(|p| converts(&p.tensor)).count();
    Ok(Written { bytes: all, quantized, kept: plan.len() - quantized })
}

/// Whether a tensor is a matrix (or several) of whole blocks. Which experts a token goes to is
/// decided by weights that llama.cpp never quantises.
fn converts(tensor: &TensorInfo<'_>) -> bool {
    let dims = tensor.dims();
    dims.len() >= 2
        && dims[0].is_multiple_of(BLOCK_LEN as u64)
        && !tensor.name().ends_with("ffn_gate_inp.weight")
}

fn planned<'a>(tensor: TensorInfo<'a>, target: Target) -> Planned<'a> {
    // Quantising what has the type already would change the scales.
    if !converts(&tensor) || tensor.ty() == target.weight_type() {
        return Planned { tensor, ggml_type: None, len: tensor.data().len() as u64 };
    }
    // The parser has checked that the elements fit a u64; blocks have fewer bytes than weights two.
    let blocks = tensor.dims().iter().product::<u64>() / BLOCK_LEN as u64;
    let len = blocks * target.weight_type().block_bytes() as u64;
    Planned { tensor, ggml_type: Some(target.ggml_type()), len }
}

/// Writes one matrix, some rows at a time.
fn matrix(
    model: &Model,
    tensor: &TensorInfo<'_>,
    target: Target,
    partial: &mut Partial<'_>,
    (wide, blocks): &mut (Vec<f32>, Vec<u8>),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Failure> {
    let fail = |fault: &dyn core::fmt::Display| model.fail(format_args!("'{}' {fault}", tensor.name()));
    let row = tensor.dims()[0] as usize;
    let row_bytes = tensor.ty().row_bytes(row);
    for bytes in tensor.data().chunks((PIECE / row).max(1) * row_bytes) {
        wide.resize(bytes.len() / row_bytes * row, 0.0);
        blocks.clear();
        dequantize(tensor.ty(), bytes, wide).map_err(|e| fail(&e))?;
        quantize(target, wide, blocks).map_err(|e| fail(&e))?;
        partial.write_in_pieces(blocks, progress)?;
    }
    Ok(())
}

/// A file under another name until it is whole; removed if it never is.
struct Partial<'a> {
    out: &'a Path,
    path: PathBuf,
    file: File,
    written: u64,
    all: u64,
    done: bool,
}

impl<'a> Partial<'a> {
    fn create(out: &'a Path, force: bool, all: u64) -> Result<Self, Failure> {
        match fs::symlink_metadata(out) {
            Ok(about) if about.is_dir() => {
                return Err(Failure::file(out, "is a folder; name a file in it"));
            }
            Ok(_) if !force => {
                return Err(Failure::file(out, "exists; use --force to replace it, or another name"));
            }
            _ => {}
        }
        // In the same folder, so that the renaming copies nothing.
        let mut name = OsString::from(out);
        name.push(format!(".part-{}", std::process::id()));
        let path = PathBuf::from(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(|e| Failure::file(&path, fault(&e, all)))?;
        Ok(Partial { out, path, file, written: 0, all, done: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|e| Failure::file(&self.path, fault(&e, self.all)))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// As `write`, with progress and Ctrl-C in between.
    fn write_in_pieces(&mut self, bytes: &[u8], progress: &mut dyn FnMut(u64, u64)) -> Result<(), Failure> {
        for piece in bytes.chunks(4 * PIECE) {
            if signal::interrupted() {
                return Err(Failure::Interrupted);
            }
            self.write(piece)?;
            progress(self.written, self.all);
        }
        Ok(())
    }

    /// Gives the file its name once its bytes are on the disk.
    fn finish(mut self) -> Result<(), Failure> {
        self.file.sync_all().map_err(|e| Failure::file(&self.path, fault(&e, self.all)))?;
        fs::rename(&self.path, self.out).map_err(|e| Failure::file(self.out, fault(&e, self.all)))?;
        self.done = true;
        // The name has to outlive a power cut too. A file system that cannot sync folders has to do.
        let folder = self.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for Partial<'_> {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What the operating system says about a file to be written, with advice where there is some.
fn fault(e: &io::Error, all: u64) -> String {
    let all = megabytes(usize::try_from(all).unwrap_or(usize::MAX));
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("no space left; the file takes {all}: free some, or write to another disk")
        }
        io::ErrorKind::FileTooLarge => format!("the file system or a limit allows no file of {all}"),
        io::ErrorKind::NotFound => String::from("no such folder; make it first"),
        io::ErrorKind::PermissionDenied => String::from("permission denied; write to a folder of your own"),
        io::ErrorKind::AlreadyExists => String::from("left over from another run; remove it"),
        _ => e.to_string(),
    }
}

/// What was written, in one line.
pub fn said(written: Written, target: Target, out: &Path) -> String {
    let Written { bytes, quantized, kept } = written;
    let (ty, out) = (target.weight_type().name(), printable(out));
    format!("{out}: {bytes} bytes, {quantized} tensors are {ty}, {kept} as they were")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_disk_say_what_to_do() {
        let said = |kind: io::ErrorKind| fault(&io::Error::from(kind), 5_300_000);
        assert!(said(io::ErrorKind::StorageFull).contains("takes 5"));
        assert!(said(io::ErrorKind::StorageFull).contains("another disk"));
        assert!(said(io::ErrorKind::NotFound).contains("make it first"));
    }

    #[test]
    fn an_unfinished_file_is_removed() {
        let dir = std::env::temp_dir().join(format!("kinglet-convert-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let out = dir.join("x.gguf");
        let mut partial = Partial::create(&out, false, 3).unwrap();
        partial.write(b"abc").unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        drop(partial);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        let mut partial = Partial::create(&out, false, 3).unwrap();
        partial.write(b"abc").unwrap();
        partial.finish().unwrap();
        assert_eq!(fs::read(&out).unwrap(), b"abc");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert!(Partial::create(&out, false, 3).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
