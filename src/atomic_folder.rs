//! Atomic folder writes: a folder is filled under a temporary name and renamed into place. A full disk or a crash
//! leaves the old folder unchanged.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::atomic_file::{self, IfExists, folder_of};

/// Creates a temporary folder next to `path`, to be filled and then [persisted](persist). Dropping it deletes the
/// folder. The system subtracts the umask from `mode`.
///
/// # Errors
/// Returns file-system errors; [`io::ErrorKind::InvalidFilename`] if the path names no folder.
pub fn temp_folder(path: &Path, mode: u32) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&atomic_file::temp_prefix(path)?)
        .suffix(".partial")
        .permissions(fs::Permissions::from_mode(mode))
        .tempdir_in(folder_of(path))
}

/// Renames a folder into place. Always replaces an empty folder. A replaced folder is moved to the temporary path and
/// deleted with it.
///
/// # Errors
/// Returns file-system errors, and [`io::ErrorKind::AlreadyExists`] for something that must be kept. Whatever was at
/// `path` is left unchanged.
pub fn persist(folder: &TempDir, path: &Path, if_exists: IfExists) -> io::Result<()> {
    if let Ok(existing) = fs::symlink_metadata(path) {
        if existing.is_dir() {
            fs::set_permissions(folder.path(), existing.permissions())?;
        }
        if if_exists == IfExists::Replace {
            return exchange(folder.path(), path);
        }
    }
    fs::rename(folder.path(), path).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
            io::ErrorKind::AlreadyExists.into()
        }
        _ => error,
    })
}

/// Exchanges two folders atomically.
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        // NFS, for example, does not support the exchange.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => replace(new, old),
        exchanged => exchanged.map_err(io::Error::from),
    }
}

/// Replaces a folder with two renames: for a moment there is no folder with this name, but never a partial one.
fn replace(new: &Path, old: &Path) -> io::Result<()> {
    let aside = temp_folder(old, 0o700)?;
    let former = aside.path().join("former");
    fs::rename(old, &former)?;
    fs::rename(new, old).inspect_err(|_| {
        // This restores the old folder; if even that fails, it is kept under its temporary name.
        if fs::rename(&former, old).is_err() {
            drop(aside.keep());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a temporary folder with a file that contains `word`.
    fn draft(path: &Path, word: &str) -> TempDir {
        let folder = temp_folder(path, 0o777).unwrap();
        fs::write(folder.path().join("word"), word).unwrap();
        folder
    }

    fn word(path: &Path) -> String {
        fs::read_to_string(path.join("word")).unwrap()
    }

    #[test]
    fn a_folder_is_replaced_only_on_request_and_no_temporary_folder_remains() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("set");
        persist(&draft(&path, "one"), &path, IfExists::Fail).unwrap();
        let error = persist(&draft(&path, "two"), &path, IfExists::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(word(&path), "one");
        persist(&draft(&path, "two"), &path, IfExists::Replace).unwrap();
        assert_eq!(word(&path), "two");
        // This is what happens on file systems without atomic exchange.
        replace(draft(&path, "three").path(), &path).unwrap();
        assert_eq!(word(&path), "three");
        replace(&home.path().join("missing"), &path).unwrap_err();
        assert_eq!(word(&path), "three");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_private_folder_remains_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("set");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        persist(&draft(&path, "one"), &path, IfExists::Fail).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        persist(&draft(&path, "two"), &path, IfExists::Replace).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn an_empty_folder_is_replaced_but_a_file_is_not() {
        let home = tempfile::tempdir().unwrap();
        let (empty, file) = (home.path().join("empty"), home.path().join("file"));
        fs::create_dir(&empty).unwrap();
        fs::write(&file, "").unwrap();
        persist(&draft(&empty, "one"), &empty, IfExists::Fail).unwrap();
        assert_eq!(word(&empty), "one");
        let error = persist(&draft(&file, "one"), &file, IfExists::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    }
}
