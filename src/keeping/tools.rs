//! PostgreSQL's own programs on this machine: the right ones for a server's version.
//!
//! `pg_dump` refuses a server of a later version than its own, and a dump of a later `pg_dump` may hold what an earlier
//! server does not know. So the program of the server's version is taken, and else the next later one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::KeepError;

/// Folders of folders of versions, and where the programs are in each: Debian's and Red Hat's packages, Homebrew's.
const PLACES: [(&str, &str, &str); 5] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql", "bin"),
    ("/opt/homebrew/opt", "libpq", "bin"),
    ("/usr/local/opt", "postgresql", "bin"),
];

/// A program of PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tool {
    /// Its name.
    pub(super) name: &'static str,
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its major version.
    pub(super) version: u32,
}

impl Tool {
    /// Another program of the same installation.
    pub(super) fn beside(&self, name: &'static str) -> Option<PathBuf> {
        let path = self.path.with_file_name(name);
        path.is_file().then_some(path)
    }
}

/// The programs of a name, those for a server of this version first, then those of later versions.
pub(super) fn all(name: &'static str, server: u32) -> Result<Vec<Tool>, KeepError> {
    let mut found: Vec<Tool> = folders()
        .iter()
        .map(|folder| folder.join(name))
        .filter(|path| path.is_file())
        .filter_map(|path| {
            let version = version(&path)?;
            Some(Tool {
                name,
                path,
                version,
            })
        })
        .collect();
    found.sort_by_key(|tool| tool.version);
    let older: Vec<String> = found.iter().map(|tool| tool.version.to_string()).collect();
    found.retain(|tool| tool.version >= server);
    if found.is_empty() {
        return Err(KeepError::NoTool {
            program: name,
            server,
            found: if older.is_empty() {
                String::new()
            } else {
                format!(", only version {}", older.join(", "))
            },
        });
    }
    Ok(found)
}

/// The program for a server of this version.
pub(super) fn find(name: &'static str, server: u32) -> Result<Tool, KeepError> {
    all(name, server).map(|mut tools| tools.swap_remove(0))
}

fn folders() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).collect())
        .unwrap_or_default();
    for (place, prefix, below) in PLACES {
        let entries = Path::new(place).read_dir().into_iter().flatten().flatten();
        folders.extend(
            entries
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
                .map(|entry| entry.path().join(below)),
        );
    }
    folders
}

fn version(program: &Path) -> Option<u32> {
    let asked = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    of_words(&String::from_utf8_lossy(&asked.stdout))
}

/// `pg_dump (PostgreSQL) 16.4 (Debian 16.4-1)` is of version 16.
fn of_words(said: &str) -> Option<u32> {
    let (_, rest) = said.split_once(") ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_a_program_says() {
        assert_eq!(
            of_words("pg_dump (PostgreSQL) 16.4 (Debian 16.4-1)\n"),
            Some(16)
        );
        assert_eq!(of_words("psql (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(of_words("a script of somebody's"), None);
    }

    #[test]
    fn a_program_that_is_too_old_is_named() {
        let error = find("pg_dump_of_nobody", 16).unwrap_err().to_string();
        assert!(
            error.contains("`pg_dump_of_nobody`") && error.contains("version 16"),
            "{error}"
        );
    }
}
