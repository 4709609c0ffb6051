//! `export` to an object store: the data set is made on this machine, and becomes an object once it is whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::classify::worker_name;
use crate::cli::CliError;
use crate::cli::score::stores;
use crate::cli::setup::Setup;
use crate::clock::SharedClock;
use crate::export::{ExportError, Format};
use crate::files::FilesError;
use crate::objects::{Address, Lock, ObjectError, Output, Upload};
use crate::placing;

/// What is put behind the name of an object for its lock.
const LOCK: &str = ".lock";

/// How long the store is tidied up after a signal: as long as nobody minds to wait.
const TIDIED_FOR: Duration = Duration::from_secs(1);

/// An object that a data set is to become. Nobody else exports to it meanwhile.
pub(super) struct Away {
    output: Output,
    name: String,
    lock: Lock,
    folder: TempDir,
    overwrite: bool,
    stop: CancellationToken,
    clock: SharedClock,
}

impl Away {
    /// The address that the output names; `None` for a file or a folder of this machine.
    pub(super) fn address(out: &Path) -> Result<Option<Address>, CliError> {
        let named = out.to_string_lossy();
        if !Address::is_one(&named) {
            return Ok(None);
        }
        let address = Address::parse(&named).map_err(FilesError::from)?;
        if address.is_folder || address.key.is_empty() {
            return Err(is_folder(&address));
        }
        Ok(Some(address))
    }

    /// The object at an address. Without a format, it would be a folder.
    pub(super) async fn to(
        address: Address,
        format: Option<Format>,
        overwrite: bool,
        setup: &Setup,
    ) -> Result<Self, CliError> {
        if format.is_none() {
            return Err(is_folder(&address));
        }
        if address.key.contains(['*', '?', '[']) {
            let usage =
                format!("`{address}` is a pattern: give the name of one object, without * ? [");
            return Err(CliError::Usage(usage));
        }
        let objects = stores(setup);
        let (stop, clock) = (setup.stop.clone(), setup.clock.clone());
        blocking(move || {
            let (parent, name) = address.key.rsplit_once('/').unwrap_or(("", &address.key));
            let mut folder = address.clone();
            parent.clone_into(&mut folder.key);
            let output = objects.output(&folder)?;
            let folder = placing::draft_folder().map_err(|source| ObjectError::File {
                path: std::env::temp_dir().display().to_string(),
                source,
            })?;
            let holder = format!("the export of {}", worker_name());
            // The folder's name is one that nobody else on this machine has.
            let token = format!("{holder} {}", folder.path().display());
            let away = Self {
                lock: output.lock(&format!("{name}{LOCK}"), &holder, &token)?,
                output,
                name: name.to_owned(),
                folder,
                overwrite,
                stop,
                clock,
            };
            // Behind the lock: whoever exported there meanwhile is done.
            let there = if overwrite {
                Ok(None)
            } else {
                objects.one(&address)
            };
            match there {
                Ok(None) => Ok(Ok(away)),
                Ok(Some(found)) => {
                    away.lock.remove()?;
                    Ok(Err(ExportError::Exists(found.shown.into())))
                }
                Err(error) => {
                    // What is wrong is told by the first error.
                    away.lock.remove().ok();
                    Err(error)
                }
            }
        })
        .await?
        .map_err(CliError::from)
    }

    /// Refuses an address where only a file of this machine will do.
    pub(super) fn refuse(address: Option<&Address>) -> Result<(), CliError> {
        let Some(address) = address else {
            return Ok(());
        };
        Err(CliError::Usage(format!(
            "tasks are not written to `{address}`: export them to this machine and copy them"
        )))
    }

    /// Where to make the data set.
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Puts the data set into the store, if it is whole. A signal ends that, too.
    pub(super) async fn end(self, is_whole: bool) -> Result<(), CliError> {
        let path = self.path();
        let Self {
            output,
            name,
            lock,
            folder,
            overwrite,
            stop,
            clock,
        } = self;
        let upload = Upload {
            replaces: overwrite,
            stop: stop.clone(),
        };
        let shown = output.shown(&name);
        let sent = blocking(move || {
            let put = if is_whole {
                output.put_file(&name, &path, &lock, &upload)
            } else {
                Ok(())
            };
            // The object is whole all the same, and the lock ends by itself.
            if let Err(error) = lock.remove() {
                tracing::warn!("the lock beside the object stays for a minute: {error}");
            }
            Ok(put)
        });
        let tidied = async {
            stop.cancelled().await;
            clock.sleep(TIDIED_FOR).await;
        };
        let put = tokio::select! {
            sent = sent => sent?,
            () = tidied => {
                tracing::warn!("the lock beside the object stays for a minute");
                Err(ObjectError::Stopped(shown.clone()))
            }
        };
        // What is sent lies there: nobody needs it any more, or the signal takes it away.
        drop(folder);
        match put {
            Err(error @ ObjectError::Stopped(_)) => {
                // The exit code says that a signal came.
                tracing::warn!("{error}");
                Err(ExportError::Stopped.into())
            }
            Err(ObjectError::Exists(_)) => Err(ExportError::Exists(shown.into()).into()),
            put => Ok(put.map_err(FilesError::from)?),
        }
    }
}

fn is_folder(address: &Address) -> CliError {
    CliError::Usage(format!(
        "a data set in an object store is one file, and `{address}` is a folder: end it in .parquet, .csv, .jsonl or .xlsx, or \
         export to a folder of this machine and copy it"
    ))
}

/// Requests are waited for, on a thread that may wait.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.expect("requests do not panic");
    Ok(done.map_err(FilesError::from)?)
}
