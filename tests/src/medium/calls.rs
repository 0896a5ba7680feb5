//! The calls of the medium in memory.

use super::{Change, FileState, MemoryMedium, Node, apply, parent};
use core::time::Duration;
use embedded_io::{ErrorType, Read, Write};
use kinglet::store::medium::{Entry, Errno, Fill, IoError, Medium, Meta, Source, Time};

/// An open file.
struct Open<'a> {
    medium: &'a MemoryMedium,
    file: usize,
    at: usize,
}

impl ErrorType for Open<'_> {
    type Error = IoError;
}

impl Read for Open<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, IoError> {
        let mut state = self.medium.state();
        state.call()?;
        let rest = state.files[self.file].live.get(self.at..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        self.at += n;
        Ok(n)
    }
}

impl Write for Open<'_> {
    fn write(&mut self, buf: &[u8]) -> Result<usize, IoError> {
        let mut state = self.medium.state();
        state.call()?;
        let room = state.capacity.map_or(usize::MAX, |most| most.saturating_sub(state.used()));
        if room == 0 && !buf.is_empty() {
            return Err(IoError(Errno::NOSPC));
        }
        for (n, byte) in buf.iter().take(room).enumerate() {
            match state.step() {
                Ok(()) => state.files[self.file].live.push(*byte),
                Err(error) if n == 0 => return Err(error),
                Err(_) => return Ok(n),
            }
        }
        Ok(room.min(buf.len()))
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

impl Source for Open<'_> {
    fn meta(&mut self) -> Result<Meta, IoError> {
        let file = &self.medium.state().files[self.file];
        Ok(Meta { entry: Entry::File, bytes: file.live.len() as u64, mtime: file.mtime })
    }

    fn touch(&mut self, mtime: Time) -> Result<(), IoError> {
        let mut state = self.medium.state();
        state.call()?;
        if state.read_only {
            return Err(IoError(Errno::ROFS));
        }
        state.files[self.file].mtime = mtime;
        Ok(())
    }
}

impl Medium for MemoryMedium {
    fn read(&self, path: &str, take: &mut dyn FnMut(&mut dyn Source)) -> Result<(), IoError> {
        let file = {
            let mut state = self.state();
            state.call()?;
            match state.node(path)? {
                Node::File(file) => file,
                _ => return Err(IoError(Errno::INVAL)),
            }
        };
        take(&mut Open { medium: self, file, at: 0 });
        Ok(())
    }

    fn write_new(&self, path: &str, mtime: Time, fill: &mut Fill<'_>) -> Result<(), IoError> {
        self.pass_gate();
        let file = {
            let mut state = self.state();
            state.call()?;
            state.step()?;
            let file = state.files.len();
            state.add(path, Node::File(file))?;
            state.files.push(FileState { live: Vec::new(), durable: Vec::new(), mtime });
            file
        };
        fill(&mut Open { medium: self, file, at: 0 })?;
        let mut state = self.state();
        state.call()?;
        state.step()?;
        if !state.lies {
            state.files[file].durable = state.files[file].live.clone();
        }
        Ok(())
    }

    fn meta(&self, path: &str) -> Result<Meta, IoError> {
        let mut state = self.state();
        state.call()?;
        let (entry, bytes, mtime) = match state.node(path)? {
            Node::File(i) => (Entry::File, state.files[i].live.len() as u64, state.files[i].mtime),
            Node::Directory => (Entry::Directory, 0, Time::default()),
            Node::Other => (Entry::Other, 0, Time::default()),
        };
        Ok(Meta { entry, bytes, mtime })
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), IoError> {
        assert_eq!(parent(from), parent(to));
        let mut state = self.state();
        state.call()?;
        state.step()?;
        let node = state.node(from)?;
        state.change(from, Change::Move(from.to_string(), to.to_string(), node));
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), IoError> {
        let mut state = self.state();
        state.call()?;
        state.step()?;
        match state.node(path)? {
            Node::Directory => Err(IoError(Errno::ISDIR)),
            _ => {
                state.change(path, Change::Remove(path.to_string()));
                Ok(())
            }
        }
    }

    fn make_dir(&self, path: &str) -> Result<(), IoError> {
        let mut state = self.state();
        state.call()?;
        // As Linux does: what is there is there, also where nothing can be changed.
        if state.node(path).is_ok() {
            return Err(IoError(Errno::EXIST));
        }
        state.step()?;
        state.add(path, Node::Directory)
    }

    fn sync_dir(&self, path: &str) -> Result<(), IoError> {
        let mut state = self.state();
        state.call()?;
        if state.node(path)? != Node::Directory {
            return Err(IoError(Errno::NOTDIR));
        }
        // As on Linux: where nothing can be changed, nothing is unsynced.
        if !state.read_only {
            state.step()?;
        }
        if state.lies {
            return Ok(());
        }
        let (synced, rest) =
            core::mem::take(&mut state.changes).into_iter().partition(|(dir, _)| dir == path);
        state.changes = rest;
        let synced: Vec<(String, Change)> = synced;
        synced.iter().for_each(|(_, change)| apply(&mut state.durable, change));
        Ok(())
    }

    fn list(&self, path: &str, each: &mut dyn FnMut(&str) -> bool) -> Result<(), IoError> {
        let names: Vec<String> = {
            let mut state = self.state();
            state.call()?;
            if state.node(path)? != Node::Directory {
                return Err(IoError(Errno::NOTDIR));
            }
            let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
            let below = state.live.range(prefix.clone()..).map(|(name, _)| name);
            let names = below.map_while(|name| name.strip_prefix(prefix.as_str()));
            names.filter(|name| !name.contains('/')).map(String::from).collect()
        };
        names.iter().all(|name| each(name));
        Ok(())
    }

    fn reopen(&self) -> Result<(), IoError> {
        self.state().call()
    }

    fn now(&self) -> Time {
        self.state().now
    }

    fn monotonic(&self) -> Duration {
        let mut state = self.state();
        let hurry = state.hurry;
        state.monotonic += hurry;
        state.monotonic
    }
}
