//! A copy of a database in the place of what the database holds.
//!
//! Posts that were purged since the copy was made do not come back with it: the tombstones of the database that goes
//! are held against the one that comes.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempPath;

use super::server::{put, readable};
use super::{Hold, KeepError, at, settle, settle_folder, with_suffix};
use crate::analysis::schema::relations;
use crate::clock::SharedClock;
use crate::store::replacing::{Held, Inspected, Locked, inspect};
use crate::store::{Access, Address, Store, StoreError};

/// What a file of SQLite begins with (<https://www.sqlite.org/fileformat2.html#magic_header_string>).
const SQLITE: &[u8] = b"SQLite format 3\0";
/// What a dump of `pg_dump --format=custom` begins with.
const DUMP: &[u8] = b"PGDMP";

/// What stands at the beginning of a file that another one took the place of.
const GONE: &[u8] = b"replaced by `topicmill db restore`";
/// How long a process that ended may take to leave the server, and the wait between two looks.
const LEAVING: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);

/// What a restore is to do.
#[derive(Clone, Copy)]
pub struct Restore<'a> {
    /// The copy.
    pub file: &'a Path,
    /// The database that is to be what the copy was.
    pub url: &'a str,
    /// Its URL for people.
    pub shown: &'a str,
    /// Whether what the database holds may go.
    pub overwrite: bool,
    /// For the wait until others have left.
    pub clock: &'a SharedClock,
}

/// Puts a copy in the place of what a database holds, completely or not at all.
///
/// # Errors
/// See [`KeepError`]; the database then holds what it held.
pub async fn restore(order: Restore<'_>) -> Result<(), KeepError> {
    match (Address::of(order.url)?, kind(order.file)?) {
        (Address::File(target), Kind::Sqlite) => into_file(order, &target).await,
        (Address::Server(variables), Kind::Dump) => into_server(order, variables).await,
        (Address::File(_), Kind::Dump) => Err(refused(
            order,
            "it is a backup of a PostgreSQL database; name such a database with --database postgres://…, and \
             `topicmill db copy` brings it into a file of SQLite",
        )),
        (Address::Server(_), Kind::Sqlite) => Err(refused(
            order,
            "it is a backup of a SQLite database; name a file with --database sqlite:…, and `topicmill db copy` \
             brings it into PostgreSQL",
        )),
        (_, Kind::Empty) => Err(refused(order, "it is empty; take another backup")),
        (_, Kind::Other) => Err(refused(
            order,
            "it is no backup of a database; name the file that `topicmill db backup` wrote",
        )),
    }
}

enum Kind {
    Sqlite,
    Dump,
    Empty,
    Other,
}

fn kind(file: &Path) -> Result<Kind, KeepError> {
    let mut start = Vec::new();
    fs::File::open(file)
        .and_then(|file| file.take(SQLITE.len() as u64).read_to_end(&mut start))
        .map_err(at("restore", file))?;
    Ok(match &start[..] {
        SQLITE => Kind::Sqlite,
        [] => Kind::Empty,
        other if other.starts_with(DUMP) => Kind::Dump,
        _ => Kind::Other,
    })
}

fn refused(order: Restore<'_>, why: impl Into<String>) -> KeepError {
    KeepError::NoBackup {
        path: order.file.to_owned(),
        why: why.into(),
    }
}

async fn into_file(order: Restore<'_>, target: &Path) -> Result<(), KeepError> {
    const WHAT: &str = "restore the database to";
    // Behind a link lies the file that is meant, even if it is not there.
    let target = target.canonicalize().unwrap_or_else(|_| {
        let meant = fs::read_link(target).unwrap_or_else(|_| target.to_owned());
        let folder = target.parent().unwrap_or(Path::new(""));
        if meant == target {
            meant
        } else {
            folder.join(meant)
        }
    });
    if same_file(order.file, &target) {
        return Err(refused(order, "it is the database itself; name a backup"));
    }
    let log = with_suffix(order.file, "-wal");
    if log.metadata().is_ok_and(|found| found.len() > 0) {
        let (file, log) = (order.file.display(), log.display());
        let why = format!(
            "what was written last lies beside it in `{log}`; make one file of both with \
             `topicmill --database sqlite:{file} db backup WHOLE`, and restore that"
        );
        return Err(refused(order, why));
    }
    let part = with_suffix(&target, ".restored");
    let Some(_hold) = Hold::of(&part)? else {
        return Err(in_use(order, "another restore is about to replace it"));
    };
    let mut old = old_database(order, &target).await?;
    // SQLite would take what a killed restore left for the journal of this copy.
    remove(&part);
    let _draft = Draft(&part);
    // The copy must not be what somebody could write to meanwhile, and is read whole before anything goes.
    let ready = match fs::copy(order.file, &part).map_err(at(WHAT, &target)) {
        Ok(_) => made_ready(order, &part, &target, old.as_mut()).await,
        Err(error) => Err(error),
    };
    let ended = match ready {
        Ok(()) if old.is_some() => put_in_place(&part, &target).map_err(at(WHAT, &target)),
        Ok(()) => put_where_none_is(&part, &target).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                in_use(order, "another program made a database there meanwhile")
            }
            _ => at(WHAT, &target)(error),
        }),
        Err(error) => Err(error),
    };
    if let Some(old) = old {
        old.release().await;
    }
    ended
}

/// A copy that goes unless it is put in place: it is of no use, whether an error or a signal ended the restore.
struct Draft<'p>(&'p Path);

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        remove(self.0);
    }
}

/// Gives the copy its name. Whoever waits for the former file has it open, and would go on in it without a name once
/// nobody holds it any more: its first bytes go, so that it is no database to them.
fn put_in_place(part: &Path, target: &Path) -> std::io::Result<()> {
    settle(part)?;
    let former = fs::OpenOptions::new().write(true).open(target);
    fs::rename(part, target)?;
    settle_folder(target)?;
    if let Ok(mut former) = former {
        // Somebody may keep it under another name.
        if former.metadata()?.nlink() == 0 {
            former.write_all(GONE)?;
        }
        // Closing any handle of a file lets go of all locks that this process has on it, so that comes last.
        drop(former);
    }
    Ok(())
}

/// Gives the copy its name if no database has it. Nobody holds a lock on what is not there, so somebody may have made one
/// since it was looked for.
fn put_where_none_is(part: &Path, target: &Path) -> std::io::Result<()> {
    settle(part)?;
    // An empty file is no database yet.
    if target.metadata().is_ok_and(|found| found.len() == 0) {
        fs::remove_file(target)?;
    }
    match TempPath::try_from_path(part)?.persist_noclobber(target) {
        Ok(()) => {}
        Err(failed) if failed.error.kind() == ErrorKind::AlreadyExists => return Err(failed.error),
        // A disk that has neither such a rename nor links.
        Err(failed) => failed.path.persist(target).map_err(|failed| failed.error)?,
    }
    settle_folder(target)
}

fn in_use(order: Restore<'_>, by: &str) -> KeepError {
    KeepError::InUse {
        url: order.shown.to_owned(),
        by: by.to_owned(),
    }
}

fn remove(part: &Path) {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(with_suffix(part, suffix));
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The database that goes, taken for ourselves; `None` where there is no file.
async fn old_database(order: Restore<'_>, target: &Path) -> Result<Option<Locked>, KeepError> {
    let in_use = |by: &str| in_use(order, by);
    if target.metadata().map_or(true, |found| found.len() == 0) {
        // SQLite would take what lies there for the log of the file that comes.
        for suffix in ["-wal", "-journal"] {
            let log = with_suffix(target, suffix);
            if log.metadata().is_ok_and(|found| found.len() > 0) {
                return Err(in_use(&format!(
                    "`{}` is the log of a database that is not there",
                    log.display()
                )));
            }
        }
        return Ok(None);
    }
    let mut old = match Locked::take(target).await {
        Ok(Some(old)) => old,
        Ok(None) => return Err(in_use("another program has the file open")),
        Err(StoreError::Damaged { said, .. }) => {
            return Err(in_use(&format!(
                "its file is damaged ({said}), so nobody can see what was purged from it: move it, and the files that \
                 end in -wal and -shm, out of the way"
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if !order.overwrite && old.holds().await? == Held::Something {
        return Err(KeepError::NotEmpty(order.shown.to_owned()));
    }
    Ok(Some(old))
}

/// Checks the copy of the copy, and takes out of it what was purged.
async fn made_ready(
    order: Restore<'_>,
    part: &Path,
    target: &Path,
    old: Option<&mut Locked>,
) -> Result<(), KeepError> {
    writable(part, target).map_err(at("restore the database to", part))?;
    match inspect(part).await? {
        Inspected::Ours(schema) => {
            tracing::debug!(schema, "the backup is whole");
        }
        Inspected::Foreign => {
            return Err(refused(
                order,
                "it is a SQLite database, but not one of topicmill",
            ));
        }
        Inspected::Damaged(said) => {
            let why = format!(
                "it is damaged, or only a part of a database ({said}); take another backup"
            );
            return Err(refused(order, why));
        }
    }
    if let Some(old) = old {
        told(old.purge_from(part).await?);
    }
    Ok(())
}

/// The file that comes may be read by those who might read the one that goes; and its owner may write to it, even where
/// somebody made the backup read-only.
fn writable(part: &Path, target: &Path) -> std::io::Result<()> {
    let like = target.metadata().or_else(|_| part.metadata())?;
    let mode = like.permissions().mode() & 0o777;
    fs::set_permissions(part, fs::Permissions::from_mode(mode | 0o600))
}

fn told(purged: u64) {
    if purged > 0 {
        tracing::info!(
            posts = purged,
            "posts that were purged since the backup stay away"
        );
    }
}

async fn into_server(
    order: Restore<'_>,
    variables: Vec<(&'static str, String)>,
) -> Result<(), KeepError> {
    let store = Store::open(order.url, Access::AnySchema).await?;
    let state = store.server_state().await?.expect("it is a server's");
    let file: PathBuf = order.file.to_owned();
    let readable = {
        let (file, state) = (file.clone(), state.clone());
        let looked = tokio::task::spawn_blocking(move || readable(&file, &state));
        looked.await.expect("looking does not panic")?
    };
    let ours: Vec<String> = relations()
        .into_iter()
        .map(|relation| relation.name)
        .chain(["_sqlx_migrations".to_owned()])
        .collect();
    let filled: Vec<String> = state
        .tables
        .iter()
        .filter(|table| {
            ours.contains(table) && !["meta", "_sqlx_migrations"].contains(&table.as_str())
        })
        .cloned()
        .collect();
    if !order.overwrite && store.any_rows(&filled).await? {
        return Err(KeepError::NotEmpty(order.shown.to_owned()));
    }
    let begun = order.clock.elapsed();
    while store.others_are_here().await? {
        if order.clock.elapsed().saturating_sub(begun) > LEAVING {
            return Err(KeepError::InUse {
                url: order.shown.to_owned(),
                by: "another process of topicmill has it open, and would go on with keys of the former one: stop it".into(),
            });
        }
        order.clock.sleep(LOOK).await;
    }
    // Our own connection must not hold what is about to go.
    store.close().await?;
    let url = order.shown.to_owned();
    let put =
        tokio::task::spawn_blocking(move || put(&readable, &file, &variables, &state, &ours, &url));
    put.await.expect("restoring does not panic")
}
