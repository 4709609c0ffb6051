//! A whole copy of a database in one file, as of one moment, whoever else writes.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::server::dump;
use super::tools::find;
use super::{Hold, KeepError, at, settle, settle_folder, with_suffix};
use crate::store::{Address, Store, StoreError};

const WHAT: &str = "copy the database to";
/// Who may read a copy of what a server keeps: whoever made it.
const PRIVATE: u32 = 0o600;

/// Who may read and write a file: a copy is no more open than what it is a copy of.
fn mode(file: &Path) -> u32 {
    file.metadata()
        .map_or(PRIVATE, |found| found.mode() & 0o777)
}

fn create(file: &Path, mode: u32) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    options.open(file).map(drop)
}

/// Copies a database to a file that is not there yet. A copy that is not finished has another name. If its process died,
/// the next copy to that file takes it away. False, and no copy, if `stop` was cancelled first.
///
/// # Errors
/// See [`KeepError`]; then there is no file.
pub async fn backup(
    store: &Store,
    address: &Address,
    file: &Path,
    overwrite: bool,
    stop: &CancellationToken,
) -> Result<bool, KeepError> {
    if address.has(file) {
        return Err(KeepError::Itself(file.to_owned()));
    }
    if file.symlink_metadata().is_ok() && !overwrite {
        return Err(KeepError::Exists(file.to_owned()));
    }
    let part = with_suffix(file, ".part");
    let Some(_hold) = Hold::of(&part)? else {
        return Err(KeepError::Busy(file.to_owned()));
    };
    if part.symlink_metadata().is_ok() {
        fs::remove_file(&part).map_err(at(WHAT, &part))?;
    }
    // SQLite would take it for the journal of this copy.
    remove_journal(&part);
    let copied = copy(store, address, file, &part, stop).await;
    // What went wrong because of the signal is no error.
    let ended = if stop.is_cancelled() {
        Ok(false)
    } else {
        copied.and_then(|()| {
            put_in_place(&part, file, overwrite).map_err(at(WHAT, file))?;
            Ok(true)
        })
    };
    if !matches!(ended, Ok(true)) {
        // What is half written is of no use; why it is, the error says. SQLite leaves its journal on a full disk.
        let _ = fs::remove_file(&part);
        remove_journal(&part);
    }
    ended
}

/// Writes the copy under the name that it has until it is whole.
async fn copy(
    store: &Store,
    address: &Address,
    file: &Path,
    part: &Path,
    stop: &CancellationToken,
) -> Result<(), KeepError> {
    match address {
        Address::File(from) => {
            // SQLite would say of a folder that is missing that it cannot open a database.
            create(part, mode(from)).map_err(at(WHAT, file))?;
            store.backup(part, stop).await.map_err(|error| match error {
                // The copy's disk, not the database's: SQLite does not say which.
                StoreError::Full => at(WHAT, file)(ErrorKind::StorageFull.into()),
                error => error.into(),
            })
        }
        Address::Server(variables) => {
            let state = tokio::select! {
                state = store.server_state() => state?.expect("it is a server's"),
                () = stop.cancelled() => return Ok(()),
            };
            let (variables, to, stop) = (variables.clone(), part.to_owned(), stop.clone());
            let dumped = tokio::task::spawn_blocking(move || {
                let tool = find("pg_dump", state.version)?;
                create(&to, PRIVATE).map_err(at(WHAT, &to))?;
                dump(&tool, &variables, &state.schema, &to, stop)
            });
            dumped.await.expect("copying does not panic")
        }
    }
}

/// Gives the copy its name.
fn put_in_place(part: &Path, file: &Path, overwrite: bool) -> io::Result<()> {
    settle(part)?;
    let linked = if overwrite {
        // To rename one of two names of a file to the other would do nothing, so there is no link first.
        Err(ErrorKind::Unsupported.into())
    } else {
        // Unlike a rename, a link does not replace what came under that name meanwhile.
        fs::hard_link(part, file)
    };
    match linked {
        Ok(()) => fs::remove_file(part),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(part, file),
    }?;
    settle_folder(file)
}

fn remove_journal(part: &Path) {
    let _ = fs::remove_file(with_suffix(part, "-journal"));
}
