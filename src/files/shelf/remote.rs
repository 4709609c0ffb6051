//! A folder of shards in an object store.
//!
//! A shard's journal grows on this machine and is copied to the store in pieces, each an object of its own that is named
//! by where it begins: whoever takes the shard over, on whatever machine, has it all but the last few seconds. The
//! shard itself is a lock in the store, and its manifest is written only where the one is that was there when it was
//! taken: so a holder that comes back late cannot publish.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{Hold, Holder, Shelf, Taken};
use crate::files::FilesError;
use crate::files::error::write_error;
use crate::files::inputs::Input;
use crate::objects::{Lock, ObjectError, Output, Upload, Version};
use crate::placing::{self, Standing};

/// What is put behind the name of a journal for its lock.
const LOCK: &str = ".lock";
/// A piece of the journal is copied when it is so long, or so old.
const PIECE: u64 = 4 << 20;
const PIECE_EACH: Duration = Duration::from_secs(20);
/// A longer piece is copied as several.
const LONGEST_PIECE: usize = 16 << 20;

/// A folder of a store.
#[derive(Clone)]
pub struct Remote(pub Output);

impl Remote {
    /// The pieces of a journal that are in the store: where each begins and how long it is, in their order.
    fn pieces(&self, journal: &str) -> Result<Vec<(String, u64, u64)>, FilesError> {
        let start = format!("{journal}.");
        let mut pieces = Vec::new();
        for (name, size) in self.list(&start)? {
            let at = name[start.len()..].parse().ok();
            pieces.extend(at.map(|at| (name, at, size)));
        }
        pieces.sort_by_key(|(_, at, _)| *at);
        Ok(pieces)
    }

    /// Writes the journal that is in the store to a file, as far as it has no gap. Pieces behind a gap were written by a
    /// holder that had lost the shard, and go.
    fn fetch(&self, journal: &str, to: &mut File) -> Result<Vec<Piece>, FilesError> {
        let (mut pieces, mut length) = (Vec::new(), 0);
        for (name, at, size) in self.pieces(journal)? {
            let content = match self.0.read(&name)? {
                Some((content, _)) if at == length && content.len() as u64 == size => content,
                _ => {
                    self.0.remove(&name)?;
                    continue;
                }
            };
            to.write_all(&content)
                .map_err(write_error(Path::new(journal)))?;
            length += size;
            pieces.push(Piece {
                name,
                size,
                digest: Sha256::digest(&content).to_vec(),
            });
        }
        Ok(pieces)
    }
}

/// A piece of a journal that is in the store.
struct Piece {
    name: String,
    size: u64,
    digest: Vec<u8>,
}

impl Shelf for Remote {
    fn shown(&self, name: &str) -> String {
        self.0.shown(name)
    }

    fn inside(&self, input: &Input) -> Option<String> {
        let folder = self.0.shown("");
        let name = input.shown.strip_prefix(folder.trim_end_matches('/'))?;
        let name = name.strip_prefix('/')?;
        (!name.contains('/')).then(|| name.to_owned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, FilesError> {
        let mut found = self.0.list()?;
        found.retain(|(name, _)| name.starts_with(prefix));
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        Ok(self.0.read(name)?.map(|(content, _)| content.to_vec()))
    }

    fn put(&self, name: &str, content: &[u8], standing: Standing) -> Result<bool, FilesError> {
        let before = match standing {
            Standing::Replaced => Version::any(),
            Standing::Kept => Version::of_nothing(),
        };
        match self.0.put(name, content.to_vec().into(), &before) {
            Ok(()) => Ok(true),
            Err(ObjectError::Exists(_)) if standing == Standing::Kept => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn remove(&self, name: &str) -> Result<(), FilesError> {
        Ok(self.0.remove(name)?)
    }

    fn hold(&self, journal: &str, who: &Holder) -> Result<Taken, FilesError> {
        let folder = placing::draft_folder().map_err(write_error(&std::env::temp_dir()))?;
        let path = folder.path().join("journal");
        let mut file = File::create(&path).map_err(write_error(&path))?;
        let told = format!(
            "process {} on {}, since {},",
            who.process, who.host, who.since
        );
        // The folder's name is one that nobody else on this machine has.
        let token = format!("{told} {}", folder.path().display());
        let lock = self.0.lock(&format!("{journal}{LOCK}"), &told, &token)?;
        let earlier = self.fetch(journal, &mut file)?;
        Ok(Taken::Ours(Box::new(Held {
            shelf: self.clone(),
            name: journal.to_owned(),
            folder,
            journal: path,
            earlier,
            copied: 0,
            copied_at: None,
            lock,
        })))
    }
}

struct Held {
    shelf: Remote,
    name: String,
    folder: TempDir,
    journal: PathBuf,
    /// What an earlier holder copied, until it was compared with what this one goes on with.
    earlier: Vec<Piece>,
    /// Bytes of the journal that are in the store.
    copied: u64,
    /// When the last piece was.
    copied_at: Option<Duration>,
    lock: Lock,
}

impl Held {
    fn output(&self) -> &Output {
        &self.shelf.0
    }

    /// Whoever goes on with a journal may have cut off its end, or all of it: what stands no longer in it goes from the
    /// store, too, the last piece first, so that there is no gap.
    fn compare(&mut self, bytes: u64) -> Result<(), FilesError> {
        let earlier = std::mem::take(&mut self.earlier);
        let failed = write_error(&self.journal);
        let mut file = File::open(&self.journal).map_err(&failed)?;
        let mut same = 0;
        for piece in &earlier {
            if self.copied + piece.size > bytes {
                break;
            }
            let mut digest = Sha256::new();
            io::copy(
                &mut Read::by_ref(&mut file).take(piece.size),
                &mut HashedBytes(&mut digest),
            )
            .map_err(&failed)?;
            if digest.finalize()[..] != piece.digest[..] {
                break;
            }
            self.copied += piece.size;
            same += 1;
        }
        for piece in earlier[same..].iter().rev() {
            self.output().remove(&piece.name)?;
        }
        Ok(())
    }

    /// The journal's next bytes, up to the end of a line.
    fn next_piece(&self, upto: u64) -> io::Result<Vec<u8>> {
        let length = usize::try_from(upto - self.copied).unwrap_or(usize::MAX);
        let mut file = File::open(&self.journal)?;
        file.seek(SeekFrom::Start(self.copied))?;
        let mut bytes = vec![0; length.min(LONGEST_PIECE)];
        file.read_exact(&mut bytes)?;
        if bytes.len() < length
            && let Some(end) = memchr::memrchr(b'\n', &bytes)
        {
            bytes.truncate(end + 1);
        }
        Ok(bytes)
    }
}

impl Hold for Held {
    fn journal(&self) -> &Path {
        &self.journal
    }

    fn keep(&mut self, bytes: u64, last: bool) -> Result<(), FilesError> {
        self.lock.check()?;
        if !self.earlier.is_empty() {
            self.compare(bytes)?;
        }
        let now = self.output().elapsed();
        // The first rows at once: whoever waits for them sees that they go where they should.
        let is_old = |at| now.saturating_sub(at) >= PIECE_EACH;
        let is_due =
            bytes.saturating_sub(self.copied) >= PIECE || self.copied_at.is_none_or(is_old) || last;
        if !is_due || self.copied >= bytes {
            return Ok(());
        }
        self.lock.renew()?;
        while self.copied < bytes {
            let piece = self.next_piece(bytes).map_err(write_error(&self.journal))?;
            let name = format!("{}.{:015}", self.name, self.copied);
            let length = piece.len() as u64;
            let put = self
                .output()
                .put(&name, piece.into(), &Version::of_nothing());
            // Only somebody who has the shard, too, can have written it.
            put.map_err(|error| lost(error, &self.name, self.output()))?;
            self.copied += length;
            self.copied_at = Some(now);
        }
        Ok(())
    }

    fn draft(&mut self, _: &str) -> Result<PathBuf, FilesError> {
        let path = self.folder.path().join("draft");
        File::create(&path).map_err(write_error(&path))?;
        Ok(path)
    }

    fn place(&mut self, draft: &Path, name: &str) -> Result<(), FilesError> {
        self.lock.check()?;
        self.output()
            .put_file(name, draft, &self.lock, &Upload::replacing())?;
        // It may be as large as the disk.
        fs::remove_file(draft).map_err(write_error(draft))
    }

    fn seal(&mut self, name: &str, content: &[u8]) -> Result<(), FilesError> {
        // In this order: whoever takes the shard over after the renewal changes what was read before it.
        let before = self.output().read(name)?;
        let before = before.map_or_else(Version::of_nothing, |(_, version)| version);
        self.lock.renew()?;
        let put = self.output().put(name, content.to_vec().into(), &before);
        put.map_err(|error| lost(error, &self.name, self.output()))
    }

    fn finish(self: Box<Self>) -> Result<(), FilesError> {
        for (name, _, _) in self.shelf.pieces(&self.name)? {
            self.output().remove(&name)?;
        }
        Ok(self.lock.remove()?)
    }
}

struct HashedBytes<'a>(&'a mut Sha256);

impl Write for HashedBytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is in the way was written by somebody else who has the shard.
fn lost(error: ObjectError, name: &str, output: &Output) -> FilesError {
    match error {
        ObjectError::Exists(_) => ObjectError::Lost(output.shown(name)).into(),
        other => other.into(),
    }
}
