//! Files that get their names when they are whole, so that nobody ever reads half of one, and a full disk or a kill
//! leaves what was there before.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

/// Bytes of the name of a temporary file: file systems take 255, and others add up to 20 to them.
const LONGEST_NAME: usize = 235;

/// What happens to a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// It is replaced.
    Replace,
    /// It stays, and placing fails with [`io::ErrorKind::AlreadyExists`].
    Fail,
}

impl IfExists {
    /// As a flag `--overwrite` says.
    pub fn from_overwrite(overwrite: bool) -> Self {
        if overwrite { Self::Replace } else { Self::Fail }
    }
}

/// The folder that a file lies in: a rename works only within one disk.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// The name of a file with something behind it. Where file systems do not take so long a name, a hash stands for its end.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    if name.len() + suffix.len() <= LONGEST_NAME {
        let mut whole = path.as_os_str().to_owned();
        whole.push(suffix);
        return whole.into();
    }
    let name = shorten(&name.to_string_lossy(), suffix.len());
    path.with_file_name(name + suffix)
}

/// What the name of a temporary file or folder for `path` begins with.
///
/// # Errors
/// [`io::ErrorKind::InvalidFilename`] for a path that names no file.
pub fn temp_prefix(path: &Path) -> io::Result<String> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    Ok(format!(".{}.", shorten(&name.to_string_lossy(), 0)))
}

/// A name that leaves room for so many bytes.
fn shorten(name: &str, room: usize) -> String {
    if name.len() + room <= LONGEST_NAME {
        return name.to_owned();
    }
    let hash = topicmill_score::hex(&Sha256::digest(name)[..8]);
    let kept = name.floor_char_boundary(LONGEST_NAME - room - hash.len() - 1);
    format!("{}-{hash}", &name[..kept])
}

/// A file beside `path`, to be written and then [placed](persist). It is deleted if that never happens.
///
/// # Errors
/// Those of the file system; [`io::ErrorKind::InvalidFilename`] for a path that names no file.
pub fn temp_file(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(&temp_prefix(path)?)
        .suffix(".partial")
        .tempfile_in(folder_of(path))
}

/// Gives a file its name, once it is on the disk.
///
/// # Errors
/// Those of the file system. What had the name is as it was then.
pub fn persist(file: NamedTempFile, path: &Path, if_exists: IfExists) -> io::Result<()> {
    file.as_file().sync_all()?;
    copy_permissions(file.path(), path)?;
    let placed = match if_exists {
        IfExists::Replace => file.persist(path),
        // Somebody may have made a file of this name since it was looked for.
        IfExists::Fail => file.persist_noclobber(path),
    };
    placed.map(drop).map_err(|error| error.error)
}

/// Writes a small file whole. What a link points to is replaced, not the link; a device or a pipe is written to as it
/// stands.
///
/// # Errors
/// Those of the file system. What had the name is as it was then.
pub fn write(path: &Path, content: impl AsRef<[u8]>, if_exists: IfExists) -> io::Result<()> {
    if if_exists == IfExists::Replace && is_device_or_pipe(path) {
        let mut there = File::options().append(true).open(path)?;
        return there.write_all(content.as_ref());
    }
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut file = temp_file(&path)?;
    file.write_all(content.as_ref())?;
    persist(file, &path, if_exists)
}

/// Whether an open file is the one of this name.
pub fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let of =
            |about: io::Result<fs::Metadata>| about.ok().map(|about| (about.dev(), about.ino()));
        of(file.metadata()) == of(path.metadata())
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        path.is_file()
    }
}

/// Whether there was no room for what was to be written, which another try may have.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

/// Whether something stands there that bytes go through. A shell may have led `/dev/stdout` into a file: that one is
/// open already, and would never hear of another under its name.
fn is_device_or_pipe(path: &Path) -> bool {
    path.starts_with("/dev")
        || fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// A file was made for us alone: it gets the rights of the one that it replaces, or those of a file that a shell makes.
fn copy_permissions(new: &Path, old: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let there = fs::metadata(old).map(|there| there.permissions());
        let rights = there.unwrap_or_else(|_| fs::Permissions::from_mode(0o644));
        fs::set_permissions(new, rights)?;
    }
    #[cfg(not(unix))]
    let _ = (new, old);
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_longest_name_is_written_too() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a".repeat(255), "é".repeat(127)] {
            let path = folder.path().join(&name);
            write(&path, "one", IfExists::Fail).unwrap();
            write(&path, "two", IfExists::Replace).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "two");
            let other = path.with_file_name(name[2..].to_owned() + "x");
            let [one, two] = [&path, &other].map(|path| with_suffix(path, ".partial.json"));
            assert_ne!(one, two);
            fs::write(&one, "").unwrap();
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_keeps_its_rights_and_a_link_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, link) = (folder.path().join("secret"), folder.path().join("link"));
        write(&secret, "one", IfExists::Fail).unwrap();
        assert_eq!(mode(&secret), 0o644);
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&secret, &link).unwrap();
        write(&link, "two", IfExists::Replace).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "two");
        assert_eq!(mode(&secret), 0o600);
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }

    #[test]
    fn what_is_kept_is_not_touched_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, "one", IfExists::Fail).unwrap();
        let error = write(&path, "two", IfExists::Fail).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_device_is_written_to_as_it_stands() {
        write(Path::new("/dev/null"), "gone", IfExists::Replace).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let full = write(Path::new("/dev/full"), "no room", IfExists::Replace).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(is_full(&full));
    }
}
