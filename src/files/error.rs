//! Why files cannot be scored.

use std::io;
use std::path::{Path, PathBuf};

use crate::objects::ObjectError;
use crate::tables::{OfPlace, TableError};
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
    /// A column that a condition reads and no row has.
    #[error(
        "choose rows with `--where`: there is no column `{name}`; a row of the output has {columns}"
    )]
    NoFilterColumn {
        /// What was asked for.
        name: String,
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
    /// An input is not what it was when the work was divided.
    #[error(
        "read `{shown}`: the file changed while it was read ({how}); let nobody write to the inputs, and give the \
         same command again; for a folder of shards whose inputs are to be the new ones, add `--overwrite`"
    )]
    Changed {
        /// The input.
        shown: String,
        /// What is different.
        how: String,
    },
    /// Somebody else has the shard.
    #[error("score {shard}: {holder} is scoring it; wait for it, or score another shard")]
    Held {
        /// Which one.
        shard: String,
        /// Who.
        holder: String,
    },
    /// An object store, or the hub.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An input has other columns than the first.
    #[error(
        "read `{shown}`: its columns are not those of `{first}`, and {how}; write it anew with the same columns, or \
         leave it out"
    )]
    OtherColumns {
        /// The input.
        shown: String,
        /// The first input.
        first: String,
        /// What is different.
        how: String,
    },
    /// The column of the text cannot hold one.
    #[error(
        "read `{shown}`: its column `{name}` is {what}, and no text; name another with `--text COLUMN`"
    )]
    NotText {
        /// The input.
        shown: String,
        /// The column.
        name: String,
        /// What it is.
        what: String,
    },
    /// An input that is no Parquet, where an output folder asks for it.
    #[error(
        "read `{0}`: only Parquet files are scored into a folder; name a file as the output, or write this one as Parquet"
    )]
    NotParquet(String),
    /// An input lies in the output folder.
    #[error("write beside `{0}`: it is one of the inputs; name another folder as the output")]
    InOutput(String),
    /// The output folder holds other work.
    #[error(
        "write to `{folder}`: it holds shards of other work: {how}; name another folder, or use `--overwrite` to begin \
         anew, which deletes them"
    )]
    OtherWork {
        /// The folder.
        folder: String,
        /// What is different.
        how: String,
    },
    /// A folder without shards.
    #[error("check `{0}`: nobody scored into it; name the folder that `topicmill score` writes to")]
    NoShards(String),
    /// A description in the output folder that is none.
    #[error("read `{shown}`: it does not describe shards ({why}); remove it, and score again")]
    NoManifest {
        /// The file.
        shown: String,
        /// What is wrong with it.
        why: String,
    },
    /// An output that is not what its manifest says.
    #[error("trust `{shown}`: it {how}; score it again with `--shard {shard} --overwrite`")]
    Damaged {
        /// The output.
        shown: String,
        /// What is different.
        how: String,
        /// The shard, for the flag.
        shard: String,
    },
    /// The model, the labels or the engine.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
}

impl FilesError {
    /// Of an input that cannot be read; an error of ours that the place put into its own comes out as it was.
    pub(super) fn of_table(path: &Path, error: TableError) -> Self {
        let path = path.to_owned();
        let error = match error {
            TableError::Io(error) => match ours(error) {
                Ok(ours) => return ours,
                Err(error) => TableError::Io(error),
            },
            error => error,
        };
        match error {
            TableError::Io(source) => Self::Read { path, source },
            source => Self::Table { path, source },
        }
    }
}

/// An error of ours that stands in one of the system's.
fn ours(error: io::Error) -> Result<FilesError, io::Error> {
    let error = match error.downcast::<OfPlace>() {
        Ok(OfPlace(inner)) => match inner.downcast::<FilesError>() {
            Ok(ours) => return Ok(*ours),
            Err(other) => io::Error::other(other),
        },
        Err(error) => error,
    };
    error.downcast::<FilesError>()
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
