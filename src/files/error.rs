//! Why files cannot be scored.

use std::io;
use std::path::{Path, PathBuf};

use crate::tables::TableError;
use topicmill_score::LabelerError;

/// Why files cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// There is no such input.
    #[error("read `{0}`: there is no such file; correct the path")]
    Missing(PathBuf),
    /// An input is a folder.
    #[error("read `{0}`: it is a folder; name the files in it, such as `{0}/*.ndjson`")]
    Folder(PathBuf),
    /// An input cannot be read.
    #[error("read `{path}`: {source}; check the file and its permissions")]
    Read {
        /// The input.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is nothing to do.
    #[error("find a text to score: {} holds no row; a row has a text and, if you like, an id", list(.0))]
    Empty(Vec<PathBuf>),
    /// A column that was asked for is not there.
    #[error("read `{path}`: there is no column `{name}`{meant}; the file has {columns}")]
    NoColumn {
        /// The input.
        path: PathBuf,
        /// What was asked for.
        name: String,
        /// The name that is most like it, as a question.
        meant: String,
        /// Those that there are.
        columns: String,
    },
    /// Nobody said where the text is.
    #[error(
        "find the text in `{path}`: name its column with `--text COLUMN`; the file has {columns}"
    )]
    NoText {
        /// The input.
        path: PathBuf,
        /// The columns that there are.
        columns: String,
    },
    /// A table without a column.
    #[error("find the text in `{0}`: the file has no columns; name another file")]
    NoColumns(PathBuf),
    /// A Parquet file is packed with what the reader was built without.
    #[error(
        "read `{path}`: it is packed with {codec}, which topicmill does not read: write it again with zstd or snappy"
    )]
    Codec {
        /// The input.
        path: PathBuf,
        /// The codec.
        codec: &'static str,
    },
    /// An input is no table, or not what it was said to be.
    #[error("read `{path}`: {source}")]
    Table {
        /// The input.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: TableError,
    },
    /// Not one row could be scored.
    #[error(
        "score {}: no row can be scored ({rows} tried; {reason}); correct the file, or say with `--text`, \
         `--id` and `--format` how to read it",
        list(.inputs)
    )]
    Hopeless {
        /// The inputs.
        inputs: Vec<PathBuf>,
        /// How many were tried.
        rows: u64,
        /// What was wrong with the first.
        reason: String,
    },
    /// The output is there already.
    #[error("write `{0}`: it exists already; remove it, name another file, or use `--overwrite`")]
    Exists(PathBuf),
    /// The output is a device or a pipe.
    #[error("write `{0}`: it is not a file; name one, or use `-` to write to stdout")]
    NoFile(PathBuf),
    /// An input would be overwritten.
    #[error("write `{0}`: it is one of the inputs; name another file")]
    IsInput(PathBuf),
    /// Somebody else writes it.
    #[error("write `{0}`: another run is writing it; wait for it, or name another file")]
    Busy(PathBuf),
    /// No room left.
    #[error(
        "write `{0}`: the disk is full; free some space and give the same command again, it goes on where it was"
    )]
    Full(PathBuf),
    /// The output cannot be written.
    #[error("write `{path}`: {source}; check that its folder exists and may be written to")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A folder without a file to read.
    #[error(
        "read `{0}`: there is no Parquet file in it; name another folder, or the files themselves"
    )]
    NothingIn(PathBuf),
    /// A pattern that is none.
    #[error(
        "read `{pattern}`: it is no pattern ({why}); correct it, or put it into quotes as it is meant"
    )]
    Pattern {
        /// What was asked for.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// The model, the labels or the engine.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
}

impl FilesError {
    /// Of an input that cannot be read.
    pub(super) fn of_table(path: &Path, error: TableError) -> Self {
        let path = path.to_owned();
        match error {
            TableError::Io(source) => Self::Read { path, source },
            source => Self::Table { path, source },
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| format!("`{}`", path.display()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// An error of writing, told from a full disk.
pub(super) fn write_error(path: &Path) -> impl Fn(io::Error) -> FilesError + '_ {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            FilesError::Full(path.to_owned())
        }
        _ => FilesError::Write {
            path: path.to_owned(),
            source,
        },
    }
}
