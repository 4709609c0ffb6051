//! Who could have put a file where it lies.

#[cfg(unix)]
use std::fs::Metadata;
use std::path::Path;

/// Why a file may be a stranger's: it, or a folder on the way to it, belongs to neither this user nor root, or others
/// may write to it. Nobody asks where a system has no such owners.
pub fn untrusted_reason(path: &Path) -> Option<String> {
    untrusted_reason_allowing(path, None)
}

/// The same, where one more user is none.
#[cfg(unix)]
pub(super) fn untrusted_reason_allowing(path: &Path, also: Option<u32>) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::geteuid().as_raw();
    let why = |place: &Path| -> Option<String> {
        let place = if place.as_os_str().is_empty() {
            Path::new(".")
        } else {
            place
        };
        let Ok(found) = place.symlink_metadata() else {
            return Some(format!("`{}` cannot be looked at", place.display()));
        };
        let owner = found.uid();
        if ![0, me].contains(&owner) && Some(owner) != also {
            return Some(format!("`{}` belongs to another user", place.display()));
        }
        is_writable_by_others(&found).then(|| format!("others may write to `{}`", place.display()))
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The links on the way, and then where they lead.
    let real = path.canonicalize().ok();
    let ways = [Some(path), real];
    ways.iter()
        .flatten()
        .flat_map(|way| way.ancestors())
        .find_map(why)
}

#[cfg(not(unix))]
pub(super) fn untrusted_reason_allowing(_path: &Path, _also: Option<u32>) -> Option<String> {
    None
}

/// Whom a file belongs to.
#[cfg(unix)]
pub(super) fn owner_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(path.metadata().ok()?.uid())
}

#[cfg(not(unix))]
pub(super) fn owner_of(_path: &Path) -> Option<u32> {
    None
}

/// Whether anybody but its owner can change a file, or what is in a folder. A group of the owner's own number is the
/// owner alone, as most systems set users up; and of what lies in a folder with the sticky bit, as `/tmp` has it, only
/// its own owner can exchange it.
#[cfg(unix)]
fn is_writable_by_others(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (mode, is_link) = (found.mode(), found.is_symlink());
    let sticky = found.is_dir() && mode & 0o1000 != 0;
    let group = mode & 0o020 != 0 && found.gid() != found.uid();
    !is_link && !sticky && (mode & 0o002 != 0 || group)
}
