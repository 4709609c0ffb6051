//! Finds out which processes hold locks on a database file.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns who holds a lock on a database file, according to the kernel; `None` if only this process does.
pub(super) fn lock_holder(path: &Path) -> Option<String> {
    let file = format!("a lock on `{}`", path.display());
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        return Some(format!("another program with {file}"));
    };
    // SQLite locks the file and, with a write-ahead log, the shared memory
    // (<https://www.sqlite.org/wal.html#how_to_block_checkpoints_and_readers_from_running>).
    let inodes = ["", "-shm"].map(|end| {
        let found = std::fs::metadata(format!("{}{end}", path.display()));
        found.map_or(0, |found| found.ino()).to_string()
    });
    // A line: number, kind, mode, access, process, device and inode, range. A request that waits has an arrow.
    let holder = |line| {
        let words: Vec<&str> = str::split_whitespace(line).collect();
        let (_, inode) = words.get(5)?.rsplit_once(':')?;
        let is_ours = inodes.iter().any(|ours| ours == inode);
        (words[3] == "WRITE" && is_ours).then(|| words[4])
    };
    let mut holders: BTreeSet<&str> = locks.lines().filter_map(holder).collect();
    let me = std::process::id().to_string();
    if holders.remove(me.as_str()) && holders.is_empty() {
        return None;
    }
    let name = |pid: &&str| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    };
    let others: Vec<String> = holders.iter().map(name).collect();
    Some(match others.join(" and ").as_str() {
        "" => format!("another program with {file}"),
        others => format!("{others} with {file}"),
    })
}
