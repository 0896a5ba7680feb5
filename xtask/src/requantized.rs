//! The real model in one weight type: `kinglet convert` makes it from the fetched file.
//!
//! The fetched file mixes types, since 896 columns are no multiple of 256. Speed is measured by
//! type. What comes out is known by its hash: the quantiser has one answer too.

use crate::model;
use crate::sh::{self, Context, Failure, Outcome};
use std::fs;
use std::path::PathBuf;

/// A weight type that the real model exists in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightType {
    /// The file that is fetched.
    Q4KM,
    /// All matrices Q8_0.
    Q8_0,
    /// All matrices Q4_0.
    Q4_0,
}

impl WeightType {
    /// All, the fetched one first.
    pub const ALL: [WeightType; 3] = [WeightType::Q4KM, WeightType::Q8_0, WeightType::Q4_0];

    /// The type of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Outcome<Self> {
        let found = Self::ALL.into_iter().find(|ty| ty.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| Failure::usage(format!("no type '{name}': q4_k_m, q8_0 or q4_0")))
    }

    /// llama.cpp's name.
    pub fn name(self) -> &'static str {
        match self {
            WeightType::Q4KM => "Q4_K_M",
            WeightType::Q8_0 => "Q8_0",
            WeightType::Q4_0 => "Q4_0",
        }
    }
}

const Q8_0_NAME: &str = "qwen2.5-coder-0.5b-instruct-q8_0.gguf";
const Q4_0_NAME: &str = "qwen2.5-coder-0.5b-instruct-q4_0.gguf";
const Q8_0_SHA256: &str = "e1ffd563283d92e0c56ef8b632808df96601d64d806b310d12f341f2d7945ff9";
const Q4_0_SHA256: &str = "5dd58b2ee69c1df33c53b28c6f4c58af8e3062508152437e08c90b0dd41bef2d";

/// Where the file of a type is, or will be.
///
/// # Errors
/// There is no cache folder.
pub fn path_of(ty: WeightType) -> Outcome<PathBuf> {
    match ty {
        WeightType::Q4KM => model::expected_path(),
        WeightType::Q8_0 => model::in_cache(Q8_0_NAME),
        WeightType::Q4_0 => model::in_cache(Q4_0_NAME),
    }
}

/// The path of the verified file of a type, made if it is not there yet.
///
/// # Errors
/// The model cannot be fetched, the conversion fails, or its hash is not the recorded one.
pub fn ensure(ty: WeightType) -> Outcome<PathBuf> {
    let sha256 = match ty {
        WeightType::Q4KM => return model::ensure(),
        WeightType::Q8_0 => Q8_0_SHA256,
        WeightType::Q4_0 => Q4_0_SHA256,
    };
    let (source, path) = (model::ensure()?, path_of(ty)?);
    if model::is_verified(&path, sha256)? {
        return Ok(path);
    }
    let _lock = model::lock(&model::with_suffix(&path, ".lock"))?;
    // Another run may have finished while we waited for the lock.
    if model::is_verified(&path, sha256)? {
        return Ok(path);
    }
    let mut cargo = sh::cargo();
    cargo.args(["run", "--release", "--quiet", "--package", "kinglet", "--", "convert", "--force"]);
    cargo.args(["--type", &ty.name().to_lowercase()]).arg("-m").arg(source).arg("-o").arg(&path);
    sh::run(&mut cargo)?;
    let found = model::hash(&path)?;
    if found != sha256 {
        fs::remove_file(&path).context("cannot remove it")?;
        return Err(Failure::new(format!(
            "the {} file has SHA-256 {found}, not {sha256}; removed it. If the quantiser changed on \
             purpose, record the new hash in xtask/src/requantized.rs",
            ty.name()
        )));
    }
    model::write_stamp(&path, sha256)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_and_files() {
        for ty in WeightType::ALL {
            assert_eq!(WeightType::named(ty.name()).unwrap(), ty);
            assert_eq!(WeightType::named(&ty.name().to_lowercase()).unwrap(), ty);
        }
        assert_eq!(WeightType::named("q2_k").unwrap_err().code, 2);
        let names = WeightType::ALL.map(|ty| path_of(ty).unwrap().file_name().unwrap().to_owned());
        assert!(names[0] != names[1] && names[1] != names[2]);
        assert_eq!((Q8_0_SHA256.len(), Q4_0_SHA256.len()), (64, 64));
    }
}
