//! Checks who could have written a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the reason why a file is not trusted: the file, or a folder on its path, belongs to neither this user nor
/// root, or is writable by others.
pub fn untrusted_reason(path: &Path) -> Option<String> {
    untrusted_reason_allowing(path, None)
}

/// Like [`untrusted_reason`], with one more trusted user.
pub(super) fn untrusted_reason_allowing(path: &Path, trusted: Option<u32>) -> Option<String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let resolved = path.canonicalize().ok();
    // Both the path as given and the path with symbolic links resolved are checked.
    let resolved = resolved.iter().flat_map(|path| path.ancestors());
    let mut files = path.ancestors().chain(resolved);
    files.find_map(|file| reason_of(file, trusted))
}

/// Returns the reason why a file or folder itself is not trusted.
fn reason_of(file: &Path, trusted: Option<u32>) -> Option<String> {
    let name = file.display();
    let Ok(metadata) = file.symlink_metadata() else {
        return Some(format!("`{name}` cannot be read"));
    };
    let (owner, me) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if ![0, me].contains(&owner) && Some(owner) != trusted {
        return Some(format!("`{name}` belongs to another user"));
    }
    is_writable_by_others(&metadata).then(|| format!("`{name}` is writable by others"))
}

/// Returns the owner of a file.
pub(super) fn owner_of(path: &Path) -> Option<u32> {
    Some(path.metadata().ok()?.uid())
}

/// Returns true if someone other than the owner can change a file or a folder's entries. A group with the owner's id is
/// the owner's private group. In a folder with the sticky bit, such as `/tmp`, only the owner can replace a file.
fn is_writable_by_others(metadata: &Metadata) -> bool {
    let (mode, is_link) = (metadata.mode(), metadata.is_symlink());
    let sticky = metadata.is_dir() && mode & 0o1000 != 0;
    let group = mode & 0o020 != 0 && metadata.gid() != metadata.uid();
    !is_link && !sticky && (mode & 0o002 != 0 || group)
}
