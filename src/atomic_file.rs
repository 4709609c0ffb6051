//! Atomic file writes: each file is written under a temporary name, synced, and renamed into place. Readers never see a
//! partial file, and the old file survives a full disk or a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

/// Maximum length of a file name, in bytes, before it is shortened for a temporary name. File systems allow 255 bytes;
/// the prefix, the random part and the suffix of a temporary name add fewer than 20 in total.
const LONGEST_NAME: usize = 235;

/// Behaviour if the file already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// Replace it.
    Replace,
    /// Keep it and fail with [`io::ErrorKind::AlreadyExists`].
    Fail,
}

impl IfExists {
    /// Returns `Replace` if `overwrite` is true, else `Fail`.
    pub fn from_overwrite(overwrite: bool) -> Self {
        if overwrite { Self::Replace } else { Self::Fail }
    }
}

/// Returns the folder that contains a file. Temporary files are created there too, because a rename is atomic only
/// within one file system.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Returns the name prefix of a temporary file or folder for `path`.
///
/// # Errors
/// [`io::ErrorKind::InvalidFilename`] for a path that names no file.
pub fn temp_prefix(path: &Path) -> io::Result<String> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let name = name.to_string_lossy();
    let end = name.floor_char_boundary(LONGEST_NAME);
    Ok(format!(".{}.", &name[..end]))
}

/// Creates a temporary file next to `path`, to be written and then [persisted](persist). Dropping it deletes the file.
/// It is never less private than the file that it replaces.
///
/// # Errors
/// File-system errors; [`io::ErrorKind::InvalidFilename`] if the path names no file.
pub fn temp_file(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(&temp_prefix(path)?)
        .suffix(".partial")
        .permissions(permissions(path))
        .tempfile_in(folder_of(path))
}

/// Syncs a temporary file and renames it into place.
///
/// # Errors
/// File-system errors. A file that was already at `path` is left unchanged.
pub fn persist(file: NamedTempFile, path: &Path, if_exists: IfExists) -> io::Result<()> {
    file.as_file().sync_all()?;
    // A replaced file's permissions may be wider than the umask allows for a new one.
    if let Ok(replaced) = fs::metadata(path) {
        fs::set_permissions(file.path(), replaced.permissions())?;
    }
    rename(file, path, if_exists)
}

/// Renames a temporary file into place, without a sync.
///
/// # Errors
/// File-system errors. A file that was already at `path` is left unchanged.
pub fn rename(file: NamedTempFile, path: &Path, if_exists: IfExists) -> io::Result<()> {
    let renamed = match if_exists {
        IfExists::Replace => file.persist(path),
        // Another process may have created the file since the caller checked.
        IfExists::Fail => file.persist_noclobber(path),
    };
    renamed.map(drop).map_err(|error| error.error)
}

/// Writes a small file atomically. Follows a symbolic link and replaces its target; writes directly to a device or a
/// pipe.
///
/// # Errors
/// File-system errors. A file that was already at `path` is left unchanged.
pub fn write(path: &Path, content: impl AsRef<[u8]>, if_exists: IfExists) -> io::Result<()> {
    if if_exists == IfExists::Replace && is_device_or_pipe(path) {
        let mut device = File::options().append(true).open(path)?;
        return device.write_all(content.as_ref());
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut file = temp_file(&path)?;
    file.write_all(content.as_ref())?;
    persist(file, &path, if_exists)
}

/// Returns true if the disk is full or a quota is exceeded: a later attempt may succeed.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

/// Returns true if `path` is a device or a pipe. `/dev/stdout` may be a file that the shell has already opened, so it
/// must not be replaced by a rename.
fn is_device_or_pipe(path: &Path) -> bool {
    path.starts_with("/dev")
        || fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// Returns the permissions of the file at `path`, or those of a new file, from which the system subtracts the umask.
fn permissions(path: &Path) -> fs::Permissions {
    fs::metadata(path).map_or_else(
        |_| fs::Permissions::from_mode(0o666),
        |replaced| replaced.permissions(),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_of_maximum_length_are_written() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a".repeat(255), "é".repeat(127)] {
            let path = folder.path().join(&name);
            write(&path, "one", IfExists::Fail).unwrap();
            write(&path, "two", IfExists::Replace).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn replacing_a_file_keeps_its_permissions_and_follows_symlinks() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, link) = (folder.path().join("secret"), folder.path().join("link"));
        write(&secret, "one", IfExists::Fail).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&secret, &link).unwrap();
        write(&link, "two", IfExists::Replace).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "two");
        assert_eq!(mode(&secret), 0o600);
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn an_existing_file_is_kept_and_no_temporary_file_remains() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, "one", IfExists::Fail).unwrap();
        let error = write(&path, "two", IfExists::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_device_is_written_to_directly() {
        write(Path::new("/dev/null"), "gone", IfExists::Replace).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let full = write(Path::new("/dev/full"), "no room", IfExists::Replace).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(is_full(&full));
    }
}
