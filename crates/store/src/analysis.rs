//! Named queries. The built-in queries are the files in the `pipelines/analysis` folder of the source code. Files in a
//! folder with the same name in the working directory take precedence.
//!
//! The first line of a query is a comment that states the question it answers. [`schema`] describes the tables.

pub mod schema;

use std::path::Path;

use serde_json::Value;

use crate::Table;

/// The folder of named queries.
pub const FOLDER: &str = "pipelines/analysis";

macro_rules! built_in {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../pipelines/analysis/", $name, ".sql")))),+]
    };
}

/// The name and the SQL of each built-in query.
pub const BUILT_IN: [(&str, &str); 10] = built_in![
    "agreement",
    "daily",
    "disagreements",
    "label-sets",
    "model-agreement",
    "provenance",
    "runs",
    "top-posts",
    "topics",
    "uncertain",
];

/// An error for a named query that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// The query is neither built in nor in the folder.
    #[error("there is no query `{0}`: use one of {1}, or write one to {FOLDER}/{0}.sql")]
    Unknown(String, String),
    /// The query's file cannot be read.
    #[error("cannot read the query `{0}`: {1}")]
    Read(String, #[source] std::io::Error),
}

/// Returns the SQL of a named query.
///
/// # Errors
/// See [`NamedError`].
pub fn named(name: &str) -> Result<String, NamedError> {
    // A name with path separators, such as `../x`, could lead out of the folder.
    let is_in_names = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_name = name.chars().all(is_in_names);
    let file = Path::new(FOLDER).join(format!("{name}.sql"));
    if is_name && file.is_file() {
        let path = file.display().to_string();
        return std::fs::read_to_string(&file).map_err(|error| NamedError::Read(path, error));
    }
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, sql)| (*sql).to_owned()).ok_or_else(|| {
        let known = BUILT_IN.map(|(known, _)| known).join(", ");
        NamedError::Unknown(name.to_owned(), known)
    })
}

/// Returns the built-in queries with the questions that they answer.
pub fn list() -> Table {
    let row = |(name, text): (&str, &str)| {
        let comment = text.lines().next().unwrap_or_default();
        let question = comment.trim_start_matches("-- ");
        vec![Value::from(name), Value::from(question)]
    };
    Table {
        columns: vec!["name".into(), "answers".into()],
        rows: BUILT_IN.into_iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_file_is_built_in_and_described() {
        let folder = format!("{}/../../{FOLDER}", env!("CARGO_MANIFEST_DIR"));
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files, BUILT_IN.map(|(name, _)| format!("{name}.sql")));
        assert!(BUILT_IN.iter().all(|(_, text)| text.starts_with("-- ")));
    }

    #[test]
    fn a_query_name_cannot_leave_the_folder() {
        let error = named("../../Cargo").unwrap_err().to_string();
        assert!(error.contains("agreement"), "{error}");
    }
}
