//! The errors in reading a table.

use std::io;

use parquet::errors::ParquetError;

/// An error in reading a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The header row is invalid.
    #[error("{0}")]
    Header(String),
    /// The Parquet file is invalid.
    #[error(transparent)]
    Parquet(#[from] ParquetFault),
    /// The file has an unsupported format.
    #[error("it is {name}: {advice}")]
    UnsupportedFormat {
        /// The format's display name.
        name: &'static str,
        /// Advice on converting the file.
        advice: &'static str,
    },
    /// The input is Parquet, but is compressed or comes from a pipe.
    #[error(
        "Parquet can be read only from an uncompressed file: decompress it first, or save the piped data to a file"
    )]
    NotSeekable,
    /// The Parquet file has two columns with the same name.
    #[error("two columns are named `{0}`: rename one of them")]
    DuplicateColumn(String),
    /// The Parquet file uses an unsupported codec.
    #[error(
        "it is compressed with {0}, which topicmill cannot read: write it again with zstd or snappy"
    )]
    UnsupportedCodec(&'static str),
}

impl TableError {
    /// Converts an error from the Parquet library. Keeps I/O errors from the operating system. A decompressor also
    /// returns I/O errors, but without an error number, so they count as damage.
    pub fn from_parquet(error: ParquetError) -> Self {
        let ParquetError::External(source) = error else {
            return ParquetFault::from(error).into();
        };
        match source.downcast::<io::Error>() {
            Ok(error) if error.raw_os_error().is_some() => Self::Io(*error),
            Ok(error) => ParquetFault::from(ParquetError::External(error)).into(),
            Err(source) => ParquetFault::from(ParquetError::External(source)).into(),
        }
    }
}

/// An error in the content of a Parquet file.
#[derive(Debug, thiserror::Error)]
pub enum ParquetFault {
    /// The file is not Parquet, is truncated or is damaged.
    #[error(
        "not a Parquet file, or a damaged one: {0}; download it again, or write it again, for example as CSV"
    )]
    Damaged(#[from] ParquetError),
    /// The file's pages would exceed the memory limit.
    #[error(
        "{what}, above the limit of {} MiB: write it again with smaller pages or row groups, or as CSV",
        .limit >> 20
    )]
    TooLarge {
        /// A description of the part that exceeds the limit.
        what: String,
        /// The limit in bytes.
        limit: u64,
    },
}

impl ParquetFault {
    /// Creates an error for inconsistent metadata.
    pub fn damaged(why: &str) -> Self {
        ParquetError::General(format!("it is damaged ({why})")).into()
    }
}
