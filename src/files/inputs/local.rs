//! Inputs on this machine.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::{Input, Opener, ReadAt, Source};
use crate::files::FilesError;
use crate::tables::Format;

/// The files of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Local;

impl Source for Local {
    fn is_mine(&self, _: &str) -> bool {
        true
    }

    fn list(&self, named: &str) -> Result<Vec<Input>, FilesError> {
        let path = Path::new(named);
        let about = match path.metadata() {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return matching(named);
            }
            Err(error) => return Err(FilesError::of_table(path, error.into())),
        };
        if !about.is_dir() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return Ok(vec![input(path, name.into_owned(), &about)]);
        }
        let mut found = Vec::new();
        walk(path, "", 0, &mut |path, name, about| {
            if Format::of_name(path).0 == Some(Format::Parquet) {
                found.push(input(path, name, about));
            }
        })?;
        if found.is_empty() {
            return Err(FilesError::NothingIn(path.to_owned()));
        }
        Ok(sorted(found))
    }
}

/// Folders in folders: more are a circle of links.
const DEEPEST: usize = 64;

/// Visits the files in a folder and in those below it. What begins with a dot or an underscore is not for readers, as
/// in other programs that read folders of Parquet.
fn walk(
    folder: &Path,
    prefix: &str,
    depth: usize,
    visit: &mut dyn FnMut(&Path, String, &Metadata),
) -> Result<(), FilesError> {
    let failed = |path: &Path, error: io::Error| FilesError::of_table(path, error.into());
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder, error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else {
            // Two such names may be the same in a manifest.
            let error = io::Error::other("its name is not UTF-8; rename it");
            return Err(failed(&path, error));
        };
        if name.starts_with(['.', '_']) {
            continue;
        }
        // A link may lead nowhere, and that is no file.
        let about = match path.metadata() {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&path, error)),
        };
        if !about.is_dir() {
            visit(&path, format!("{prefix}{name}"), &about);
        } else if depth < DEEPEST {
            walk(&path, &format!("{prefix}{name}/"), depth + 1, visit)?;
        }
    }
    Ok(())
}

/// The files that a pattern matches. A file that is there under this very name was looked for already.
fn matching(named: &str) -> Result<Vec<Input>, FilesError> {
    let missing = || FilesError::Missing(named.into());
    let Some(wild) = named.find(['*', '?', '[']) else {
        return Err(missing());
    };
    // The folder before the first wild character is where the search begins.
    let is_separator = |c: char| std::path::is_separator(c);
    let cut = named[..wild].rfind(is_separator).map_or(0, |at| at + 1);
    let (folder, wanted) = named.split_at(cut);
    let wanted = wanted.replace(std::path::MAIN_SEPARATOR, "/");
    let pattern = super::pattern(&wanted).map_err(|why| FilesError::Pattern {
        pattern: named.to_owned(),
        why,
    })?;
    let folder = PathBuf::from(if folder.is_empty() { "." } else { folder });
    if !folder.is_dir() {
        return Err(missing());
    }
    let mut found = Vec::new();
    walk(&folder, "", 0, &mut |path, name, about| {
        if pattern.matches(&name) {
            let path = path.strip_prefix("./").unwrap_or(path);
            found.push(input(path, name, about));
        }
    })?;
    if found.is_empty() {
        return Err(missing());
    }
    Ok(sorted(found))
}

fn sorted(mut inputs: Vec<Input>) -> Vec<Input> {
    inputs.sort_by(|one, other| one.name.cmp(&other.name));
    inputs
}

fn input(path: &Path, name: String, about: &Metadata) -> Input {
    Input {
        shown: path.display().to_string(),
        name,
        size: about.len(),
        version: changed(about),
        opener: Arc::new(OnDisk(path.to_owned())),
    }
}

/// When a file was changed last, in nanoseconds since 1970.
fn changed(about: &Metadata) -> String {
    let at = about.modified().ok();
    let at = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    at.map_or_else(String::new, |at| at.as_nanos().to_string())
}

struct OnDisk(PathBuf);

impl Opener for OnDisk {
    fn open(&self, input: &Input) -> Result<Arc<dyn ReadAt>, FilesError> {
        let file = File::open(&self.0).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FilesError::Changed {
                shown: input.shown.clone(),
                how: "it is gone".to_owned(),
            },
            _ => FilesError::of_table(&self.0, error.into()),
        })?;
        let opened = OpenFile {
            file,
            shown: input.shown.clone(),
            size: input.size,
            version: input.version.clone(),
        };
        let is_same = opened.unchanged();
        is_same.map_err(|error| super::read_error(&input.shown, error))?;
        Ok(Arc::new(opened))
    }
}

struct OpenFile {
    file: File,
    shown: String,
    size: u64,
    version: String,
}

impl ReadAt for OpenFile {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        #[cfg(unix)]
        {
            std::os::unix::fs::FileExt::read_exact_at(&self.file, into, at)
        }
        #[cfg(windows)]
        {
            let (mut at, mut into) = (at, into);
            while !into.is_empty() {
                let n = std::os::windows::fs::FileExt::seek_read(&self.file, into, at)?;
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                at += n as u64;
                into = &mut into[n..];
            }
            Ok(())
        }
    }

    fn unchanged(&self) -> io::Result<()> {
        let about = self.file.metadata()?;
        let how = if about.len() != self.size {
            format!("it had {} bytes, and has {}", self.size, about.len())
        } else if changed(&about) != self.version {
            "it was written to since".to_owned()
        } else {
            return Ok(());
        };
        Err(io::Error::other(FilesError::Changed {
            shown: self.shown.clone(),
            how,
        }))
    }
}
