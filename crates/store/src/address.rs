//! Converts a database URL for other programs: to the path of the SQLite file, or to the environment variables of
//! PostgreSQL's client programs. The password is never passed as an argument, because every user of a machine can read
//! process arguments.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::sqlite::SqliteConnectOptions;

use super::dialect::{Backend, backend};
use super::{Result, StoreError};
use topicmill_core::redact_url;

/// URL parameters that name files, with the corresponding environment variables.
const FILES: [(&str, &str); 6] = [
    ("sslrootcert", "PGSSLROOTCERT"),
    ("ssl-root-cert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("ssl-cert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    ("ssl-key", "PGSSLKEY"),
];

/// The target of a database URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a SQLite file.
    File(PathBuf),
    /// The environment variables that PostgreSQL's client programs use to connect to a server.
    Server(Vec<(&'static str, String)>),
}

impl Address {
    /// Parses a database URL.
    ///
    /// # Errors
    /// [`StoreError::Url`] if the URL does not name a supported database.
    pub fn parse(url: &str) -> Result<Self> {
        let unknown = |_| StoreError::Url(redact_url(url));
        match backend(url)? {
            Backend::Sqlite => {
                let options = SqliteConnectOptions::from_str(url).map_err(unknown)?;
                Ok(Self::File(options.get_filename().to_owned()))
            }
            Backend::Postgres => {
                let options = PgConnectOptions::from_str(url).map_err(unknown)?;
                Ok(Self::Server(environment(url, &options)))
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
    if let Ok(there) = path.canonicalize() {
        return Some(there);
    }
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(folder.join(path.file_name()?))
}

fn environment(url: &str, options: &PgConnectOptions) -> Vec<(&'static str, String)> {
    let host = options.get_socket().map_or_else(
        || options.get_host().trim_matches(['[', ']']).to_owned(),
        |folder| folder.display().to_string(),
    );
    let user = options.get_username().to_owned();
    let database = options.get_database().unwrap_or(&user).to_owned();
    let encryption = match options.get_ssl_mode() {
        PgSslMode::Disable => "disable",
        PgSslMode::Allow => "allow",
        PgSslMode::Prefer => "prefer",
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
    };
    let mut variables = vec![
        ("PGHOST", host),
        ("PGPORT", options.get_port().to_string()),
        ("PGUSER", user),
        ("PGDATABASE", database),
        ("PGSSLMODE", encryption.to_owned()),
        ("PGAPPNAME", "topicmill".to_owned()),
        ("PGCONNECT_TIMEOUT", "15".to_owned()),
    ];
    if let Some(options) = options.get_options() {
        variables.push(("PGOPTIONS", options.to_owned()));
    }
    if let Ok(url) = url::Url::parse(url) {
        if let Some(password) = url.password() {
            variables.push(("PGPASSWORD", percent_decoded(password)));
        }
        for (name, value) in url.query_pairs() {
            if name == "password" {
                variables.push(("PGPASSWORD", value.into_owned()));
            } else if let Some((_, variable)) = FILES.iter().find(|(file, _)| *file == name) {
                variables.push((variable, value.into_owned()));
            }
        }
    }
    variables
}

/// Decodes percent-encoding.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut percent_decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = text
            .get(at + 1..at + 3)
            .filter(|_| bytes[at] == b'%')
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        percent_decoded.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&percent_decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_environment_variables_or_a_file() {
        let url = "postgres://me:p%40ss%2Fword@host.example:5433/posts?sslmode=require&sslrootcert=/ca.pem";
        let Address::Server(variables) = Address::parse(url).unwrap() else {
            panic!("not a server");
        };
        for (name, value) in [
            ("PGHOST", "host.example"),
            ("PGPORT", "5433"),
            ("PGUSER", "me"),
            ("PGDATABASE", "posts"),
            ("PGPASSWORD", "p@ss/word"),
            ("PGSSLMODE", "require"),
            ("PGSSLROOTCERT", "/ca.pem"),
        ] {
            assert!(
                variables.contains(&(name, value.to_owned())),
                "{name} {variables:?}"
            );
        }
        let file = Address::parse("sqlite:some/posts.db?mode=rwc").unwrap();
        assert_eq!(file, Address::File("some/posts.db".into()));
        assert_eq!(percent_decoded("100%"), "100%");
    }
}
