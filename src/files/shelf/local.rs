//! A folder of shards on this machine, or on a disk that several machines share.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::{Hold, Holder, Shelf, Taken};
use crate::files::error::{FilesError, write_error};
use crate::files::inputs::Input;
use crate::placing::{self, Standing, is_at};

/// What is put behind the name of a journal for who has it.
const HOLDER: &str = ".holder";

/// A folder.
#[derive(Debug, Clone)]
pub struct Folder(pub PathBuf);

impl Folder {
    fn at(&self, name: &str) -> PathBuf {
        name.split('/')
            .fold(self.0.clone(), |at, part| at.join(part))
    }

    /// The place of a file that is about to be written.
    fn made(&self, name: &str) -> Result<PathBuf, FilesError> {
        let path = self.at(name);
        let folder = placing::folder_of(&path);
        fs::create_dir_all(folder).map_err(write_error(folder))?;
        Ok(path)
    }
}

/// What reading came to; `None` where there is no such file.
fn if_there<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, FilesError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FilesError::of_table(path, error.into())),
    }
}

impl Shelf for Folder {
    fn shown(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn inside(&self, input: &Input) -> Option<String> {
        let ours = self.0.canonicalize().ok()?;
        let theirs = Path::new(&input.shown).canonicalize().ok()?;
        let name = theirs.file_name()?.to_str()?.to_owned();
        (theirs.parent()? == ours).then_some(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, FilesError> {
        let mut found = Vec::new();
        let mut folders = vec![String::new()];
        while let Some(below) = folders.pop() {
            let folder = self.at(&below);
            let Some(entries) = if_there(&folder, fs::read_dir(&folder))? else {
                continue;
            };
            for entry in entries {
                let entry = entry.map_err(|error| FilesError::of_table(&folder, error.into()))?;
                let name = format!("{below}{}", entry.file_name().to_string_lossy());
                // Gone since: another shard has just finished.
                let Some(about) = if_there(&entry.path(), entry.metadata())? else {
                    continue;
                };
                let leads = |to: &str| to.starts_with(prefix) || prefix.starts_with(to);
                if about.is_dir() {
                    folders.extend(Some(format!("{name}/")).filter(|name| leads(name)));
                } else if name.starts_with(prefix) {
                    found.push((name, about.len()));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FilesError> {
        let path = self.at(name);
        if_there(&path, fs::read(&path))
    }

    fn put(&self, name: &str, content: &[u8], standing: Standing) -> Result<bool, FilesError> {
        let path = self.made(name)?;
        match placing::put(&path, content, standing) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(write_error(&path)(error)),
        }
    }

    fn remove(&self, name: &str) -> Result<(), FilesError> {
        match fs::remove_file(self.at(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(write_error(&self.at(name))(error))
            }
            _ => Ok(()),
        }
    }

    fn hold(&self, journal: &str, who: &Holder) -> Result<Taken, FilesError> {
        let path = self.made(journal)?;
        let holder = format!("{journal}{HOLDER}");
        // Each turn but the last is one in which another process finished the shard in between.
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(write_error(&path))?;
            // The system gives the lock back when the process dies.
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {}
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) => {
                    let told = self.read(&holder)?;
                    let told = told.and_then(|told| serde_json::from_slice(&told).ok());
                    return Ok(Taken::Theirs(told));
                }
                Err(TryLockError::Error(error)) => tracing::warn!(
                    %error,
                    "this disk has no locks: see to it that no two processes score one shard"
                ),
            }
            let content = serde_json::to_vec(who).expect("a struct of strings is JSON");
            self.put(&holder, &content, Standing::Replaced)?;
            return Ok(Taken::Ours(Box::new(Held {
                folder: self.clone(),
                journal: path,
                holder,
                _lock: file,
            })));
        }
    }
}

struct Held {
    folder: Folder,
    journal: PathBuf,
    holder: String,
    _lock: File,
}

impl Hold for Held {
    fn journal(&self) -> &Path {
        &self.journal
    }

    fn keep(&mut self, _: u64, _: bool) -> Result<(), FilesError> {
        Ok(())
    }

    fn draft(&mut self, name: &str) -> Result<PathBuf, FilesError> {
        let path = self.folder.made(name)?;
        File::create(&path).map_err(write_error(&path))?;
        Ok(path)
    }

    fn place(&mut self, draft: &Path, name: &str) -> Result<(), FilesError> {
        let path = self.folder.made(name)?;
        let placed = File::open(draft)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(draft, &path));
        placed.map_err(write_error(&path))
    }

    fn seal(&mut self, name: &str, content: &[u8]) -> Result<(), FilesError> {
        self.folder.put(name, content, Standing::Replaced).map(drop)
    }

    fn finish(self: Box<Self>) -> Result<(), FilesError> {
        // The lock goes last, with the file that it is on.
        self.folder.remove(&self.holder)?;
        fs::remove_file(&self.journal).map_err(write_error(&self.journal))
    }
}
