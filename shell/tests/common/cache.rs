//! Directories of KV caches, made file by file. Must not know what is tested.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::scratch;
use kinglet_core::kv::identity::LAYOUT_VERSION;
use kinglet_core::kv::{BLOCK_TOKENS, BlockId, ContentId, Geometry, Header, Identity, KvType, file, pack};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A time some seconds ago, with a number of hits in its nanoseconds.
pub fn ago(seconds: u64, hits: u32) -> SystemTime {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    SystemTime::UNIX_EPOCH + Duration::new(now - seconds, hits)
}

/// The smallest caches there are; `salt` makes them those of another model.
pub fn identity(salt: u8) -> Identity {
    let hash = |n: u8| BlockId([n ^ salt; 16]);
    Identity {
        geometry: Geometry { kv_type: KvType::Q8, n_layers: 1, n_kv_heads: 1, head_dim: 16 },
        numerics: kinglet_core::NUMERICS_VERSION,
        layout: LAYOUT_VERSION,
        dimensions: hash(1),
        rope: hash(2),
        tokenizer: hash(3),
        template: hash(4),
        types: hash(5),
        weights: hash(6),
    }
}

/// The caches of one model in a directory.
pub struct Cache {
    pub dir: PathBuf,
    pub identity: Identity,
    pub fingerprint: BlockId,
}

/// An empty directory.
pub fn directory(name: &str) -> PathBuf {
    let dir = scratch().join("caches").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

impl Cache {
    pub fn new(name: &str) -> Cache {
        Cache::of(&directory(name), identity(0))
    }

    pub fn of(dir: &Path, identity: Identity) -> Cache {
        let fingerprint = identity.fingerprint();
        let cache = Cache { dir: dir.to_path_buf(), identity, fingerprint };
        fs::create_dir_all(cache.folder()).unwrap();
        fs::write(cache.folder().join("identity"), file::encode_identity(&identity)).unwrap();
        cache
    }

    pub fn folder(&self) -> PathBuf {
        self.dir.join(self.fingerprint.to_string())
    }

    pub fn arg(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    pub fn root(&self) -> BlockId {
        BlockId::root(&self.fingerprint, b"")
    }

    /// The path of a whole block.
    pub fn block(&self, id: &BlockId) -> PathBuf {
        self.folder().join(format!("{:02x}", id.0[0])).join(format!("{id}.kv"))
    }

    /// The path of the tail after a block.
    pub fn tail(&self, parent: &BlockId) -> PathBuf {
        self.folder().join(format!("{:02x}", parent.0[0])).join(format!("{parent}.tail"))
    }

    /// The memory of a block: bytes that depend on what it holds.
    pub fn memory(&self, id: &BlockId) -> Vec<u8> {
        let at = |i: usize| id.0[i % 16].wrapping_mul(31).wrapping_add((i / 16) as u8) | 1;
        (0..self.identity.geometry.block_bytes()).map(at).collect()
    }

    /// The file of a block of 1 to 32 positions.
    pub fn encoded(&self, parent: &BlockId, position: u32, contents: &[ContentId]) -> Vec<u8> {
        let mut header = Header::new(&self.identity, &self.fingerprint, parent, position, contents).unwrap();
        let memory = self.memory(header.id());
        let mut payload = memory.clone();
        let len = pack::pack(header.geometry(), contents.len(), &memory, &mut payload).unwrap();
        let mut out = vec![0; header.file_bytes() as usize];
        file::encode(&mut header, &payload[..len], &mut &mut out[..]).unwrap();
        out
    }

    /// Writes the file of a block if it is not there; its id.
    pub fn put(&self, parent: &BlockId, position: u32, contents: &[ContentId], at: SystemTime) -> BlockId {
        let id = parent.child(contents);
        let path = if contents.len() < BLOCK_TOKENS { self.tail(parent) } else { self.block(&id) };
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, self.encoded(parent, position, contents)).unwrap();
            set_time(&path, at);
        }
        id
    }

    /// Writes the blocks of a conversation that are not there; their ids, from the first.
    pub fn chat(&self, tokens: &[u32], at: SystemTime) -> Vec<BlockId> {
        let contents: Vec<ContentId> = tokens.iter().map(|token| ContentId::token(*token)).collect();
        let mut ids = vec![self.root()];
        for (position, contents) in (0..).zip(contents.chunks(BLOCK_TOKENS)) {
            ids.push(self.put(ids.last().unwrap(), position, contents, at));
        }
        ids.remove(0);
        ids
    }
}

pub fn set_time(path: &Path, at: SystemTime) {
    File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

/// All files below a directory, sorted, with their bytes.
pub fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&path));
        } else if kind.is_file() {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}
