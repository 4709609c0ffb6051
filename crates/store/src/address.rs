//! Distinguishes database URLs that name a SQLite file from those that name a server.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::dialect::{Backend, backend};
use super::{Result, StoreError};
use topicmill_core::redact_url;

/// The target of a database URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a SQLite file.
    File(PathBuf),
    /// A PostgreSQL server.
    Server,
}

impl Address {
    /// Parses a database URL.
    ///
    /// # Errors
    /// [`StoreError::Url`] if the URL does not name a supported database.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid = |_| StoreError::Url(redact_url(url));
        match backend(url)? {
            Backend::Sqlite => {
                let options = SqliteConnectOptions::from_str(url).map_err(invalid)?;
                Ok(Self::File(options.get_filename().to_owned()))
            }
            Backend::Postgres => {
                PgConnectOptions::from_str(url).map_err(invalid)?;
                Ok(Self::Server)
            }
        }
    }

    /// Returns true if a path is the database file, or a file that SQLite keeps next to it. Replacing such a file would
    /// leave open connections working on a deleted file.
    pub fn includes(&self, path: &Path) -> bool {
        let Self::File(database) = self else {
            return false;
        };
        let (Some(database), Some(path)) = (absolute_path(database), absolute_path(path)) else {
            return false;
        };
        ["", "-wal", "-shm", "-journal"].iter().any(|suffix| {
            let mut name = database.clone().into_os_string();
            name.push(suffix);
            path.as_os_str() == name
        })
    }
}

/// Returns the absolute path of a file that need not exist; `None` if its folder does not exist.
fn absolute_path(path: &Path) -> Option<PathBuf> {
    if let Ok(canonical) = path.canonicalize() {
        return Some(canonical);
    }
    let folder = match path.parent()? {
        folder if folder == Path::new("") => Path::new("."),
        folder => folder,
    };
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}
