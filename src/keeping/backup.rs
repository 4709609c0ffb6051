//! A whole copy of a database in one file, as of one moment, whoever else writes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::server::dump;
use super::tools::find;
use super::{KeepError, at, settle, settle_folder, with_suffix};
use crate::placing::is_at;
use crate::store::{Address, Store, StoreError};

/// Who may read a copy of what a server keeps: whoever made it.
const PRIVATE: u32 = 0o600;

/// Who may read and write a file: a copy is no more open than what it is a copy of.
fn mode(file: &Path) -> u32 {
    file.metadata()
        .map_or(PRIVATE, |found| found.mode() & 0o777)
}

/// An empty file for a copy, locked until it is closed; `None` while another process has one of this name. What a process
/// left that died is taken away: the system gave its lock back.
fn draft(part: &Path, mode: u32) -> io::Result<Option<File>> {
    let mut new = OpenOptions::new();
    new.write(true).create_new(true).mode(mode);
    // Each turn but the last is one in which another process came or went in between.
    loop {
        match new.open(part) {
            Ok(file) => match file.try_lock() {
                Ok(()) if is_at(&file, part) => return Ok(Some(file)),
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(
                        %error,
                        "this disk has no locks: see to it that no two processes copy a database to one file"
                    );
                    return Ok(Some(file));
                }
            },
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let left = match File::open(part) {
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    left => left?,
                };
                match left.try_lock() {
                    Ok(()) if !is_at(&left, part) => {}
                    Ok(()) | Err(TryLockError::Error(_)) => fs::remove_file(part)?,
                    Err(TryLockError::WouldBlock) => return Ok(None),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Copies a database to a file that is not there yet. A copy that is not finished has another name. If its process died,
/// the next copy to that file takes it away.
///
/// # Errors
/// See [`KeepError`]; then there is no file.
pub async fn backup(
    store: &Store,
    address: &Address,
    file: &Path,
    overwrite: bool,
) -> Result<(), KeepError> {
    const WHAT: &str = "copy the database to";
    if address.has(file) {
        return Err(KeepError::Itself(file.to_owned()));
    }
    if file.symlink_metadata().is_ok() && !overwrite {
        return Err(KeepError::Exists(file.to_owned()));
    }
    let part = with_suffix(file, ".part");
    let mode = match address {
        Address::File(from) => mode(from),
        Address::Server(_) => PRIVATE,
    };
    // SQLite would say of a folder that is missing that it cannot open a database.
    let draft = draft(&part, mode).map_err(at(WHAT, file))?;
    let Some(draft) = draft else {
        return Err(KeepError::Busy(file.to_owned()));
    };
    let copied = match address {
        Address::File(_) => store.backup(&part).await.map_err(|error| match error {
            // The copy's disk, not the database's: SQLite does not say which.
            StoreError::Full => at(WHAT, file)(ErrorKind::StorageFull.into()),
            error => error.into(),
        }),
        Address::Server(variables) => {
            let state = store.server_state().await?.expect("it is a server's");
            let (variables, to) = (variables.clone(), part.clone());
            let dumped = tokio::task::spawn_blocking(move || {
                let tool = find("pg_dump", state.version)?;
                dump(&tool, &variables, &state.schema, &to)
            });
            dumped.await.expect("copying does not panic")
        }
    };
    let ended = copied.and_then(|()| {
        settle(&part).map_err(at(WHAT, file))?;
        // Unlike a rename, a link does not replace what came under that name meanwhile.
        match fs::hard_link(&part, file) {
            _ if overwrite => fs::rename(&part, file),
            Ok(()) => fs::remove_file(&part),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            Err(_) => fs::rename(&part, file),
        }
        .map_err(at(WHAT, file))?;
        settle_folder(file).map_err(at(WHAT, file))
    });
    if ended.is_err() {
        // What is half written is of no use; why it is, the error says. SQLite leaves its journal on a full disk.
        let _ = fs::remove_file(&part);
        let _ = fs::remove_file(with_suffix(&part, "-journal"));
    }
    // Whoever takes the name from now on finds it free.
    drop(draft);
    ended
}
