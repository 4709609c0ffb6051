//! Folders that get their names when they are whole, as files do: what enters is a folder beside its place, what leaves
//! is the folder under its name. Nobody ever finds half of one, and a full disk or a kill leaves what was there before.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

use crate::atomic_file::{self, IfExists, folder_of};

/// A folder beside `path`, to be filled and then [placed](persist): on the same disk, so that a rename puts it there. It is
/// deleted with all that is in it when this is dropped.
///
/// # Errors
/// Those of the file system; [`io::ErrorKind::InvalidFilename`] for a path that names no folder.
pub(super) fn temp_folder(path: &Path) -> io::Result<TempDir> {
    temp_folder_named(path, ".partial")
}

/// Gives a folder its name. An empty folder of this name is replaced in any case. What had the name lies where the folder
/// was made, and is deleted with it.
///
/// # Errors
/// Those of the file system, and [`io::ErrorKind::AlreadyExists`] for something that is to be kept. What had the name is
/// as it was then.
pub(super) fn persist(folder: &TempDir, path: &Path, if_exists: IfExists) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // It was made for us alone: it becomes as readable as what it replaces, or as a folder that a shell makes.
        let mode = match fs::symlink_metadata(path) {
            Ok(there) if there.is_dir() => there.permissions(),
            _ => fs::Permissions::from_mode(0o755),
        };
        fs::set_permissions(folder.path(), mode)?;
    }
    if if_exists == IfExists::Replace && path.symlink_metadata().is_ok() {
        return exchange(folder.path(), path);
    }
    fs::rename(folder.path(), path).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
            io::ErrorKind::AlreadyExists.into()
        }
        _ => error,
    })
}

/// A new folder whose name begins with a dot and the name of `path`.
fn temp_folder_named(path: &Path, suffix: &str) -> io::Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&atomic_file::temp_prefix(path)?)
        .suffix(suffix)
        .tempdir_in(folder_of(path))
}

/// Gives each of two folders the name of the other one, at once.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;

    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        // NFS, for one, cannot.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => replace(new, old),
        exchanged => exchanged.map_err(io::Error::from),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn exchange(new: &Path, old: &Path) -> io::Result<()> {
    replace(new, old)
}

/// The same in two renames: in between there is no folder of this name, but never half of one.
fn replace(new: &Path, old: &Path) -> io::Result<()> {
    let aside = temp_folder_named(old, ".old")?;
    let former = aside.path().join("former");
    fs::rename(old, &former)?;
    fs::rename(new, old).inspect_err(|_| {
        // What was there goes back; if not even that works, it is not deleted with the folder it lies in.
        if fs::rename(&former, old).is_err() {
            drop(aside.keep());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a file that says `word`.
    fn draft(path: &Path, word: &str) -> TempDir {
        let folder = temp_folder(path).unwrap();
        fs::write(folder.path().join("word"), word).unwrap();
        folder
    }

    fn word(path: &Path) -> String {
        fs::read_to_string(path.join("word")).unwrap()
    }

    #[test]
    fn a_folder_is_replaced_if_that_is_wanted_and_nothing_is_left_beside_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("set");
        persist(&draft(&path, "one"), &path, IfExists::Fail).unwrap();
        let error = persist(&draft(&path, "two"), &path, IfExists::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(word(&path), "one");
        persist(&draft(&path, "two"), &path, IfExists::Replace).unwrap();
        assert_eq!(word(&path), "two");
        // As on a disk that cannot exchange names.
        replace(draft(&path, "three").path(), &path).unwrap();
        assert_eq!(word(&path), "three");
        replace(&home.path().join("missing"), &path).unwrap_err();
        assert_eq!(word(&path), "three");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_private_folder_stays_private() {
        use std::os::unix::fs::PermissionsExt;

        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("set");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        persist(&draft(&path, "one"), &path, IfExists::Fail).unwrap();
        assert_eq!(mode(), 0o755);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        persist(&draft(&path, "two"), &path, IfExists::Replace).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn an_empty_folder_is_in_nobodys_way_and_a_file_is() {
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
