//! How the work is divided: inputs and settings go in, and the rows of each shard come out.
//!
//! The division depends on the names of the inputs and on what each says of itself at its end, and on nothing else, so
//! that a hundred machines that never talk to each other agree on it. All rows, one input behind the other, are cut into
//! as many equal parts as there are shards.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use parquet::basic::{LogicalType, Type as Physical};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{Type, TypePtr};
use sha2::{Digest, Sha256};

use super::{Shard, ShardJob};
use crate::files::columnar::{check_codecs, names_of};
use crate::files::columns::Columns;
use crate::files::inputs::{Chunks, Input, Segment};
use crate::files::wanted::check_names;
use crate::files::{FilesError, inputs};
use crate::tables::parquet::caught;
use crate::tables::{ParquetFault, TableError};
use topicmill_score::hex;

/// Inputs whose ends are read at the same time: it is the waiting that takes long, on a network.
const READERS: usize = 16;

/// An input, and what it says of itself at its end.
pub(super) struct Planned {
    pub(super) input: Input,
    pub(super) rows: u64,
    /// A hash of its description, which lists the place, the size and mostly the least and greatest value of each part.
    pub(super) digest: String,
}

/// The inputs, and which of their rows are in which shard.
pub struct Plan {
    pub(super) inputs: Vec<Planned>,
    pub(super) rows: u64,
    /// What the first input says of itself; all have the same columns.
    pub(super) about: Arc<ParquetMetaData>,
}

impl Plan {
    /// Reads what the inputs say of themselves, and checks that they can be read as one table.
    ///
    /// # Errors
    /// Where an input is no Parquet file, has other columns than the first, or has no text.
    pub fn read(job: &ShardJob) -> Result<Self, FilesError> {
        let Some(first) = job.inputs.first() else {
            return Err(FilesError::Empty(Vec::new()));
        };
        let about = about(first, &first.open()?)?;
        check_text(job, first, &about)?;
        let next = AtomicUsize::new(0);
        let read: Vec<_> = job.inputs.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..READERS.min(job.inputs.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(input) = job.inputs.get(at) else {
                            return;
                        };
                        let planned = planned(input, first, &about);
                        // The first error ends the run, so the inputs behind it need not be read.
                        if planned.is_err() {
                            next.store(job.inputs.len(), Ordering::Relaxed);
                        }
                        *read[at].lock().expect("nothing panics in here") = Some(planned);
                    }
                });
            }
        });
        let mut inputs = Vec::with_capacity(read.len());
        for planned in read {
            if let Some(planned) = planned.into_inner().expect("nothing panics in here") {
                inputs.push(planned?);
            }
        }
        let rows = inputs.iter().map(|planned| planned.rows).sum();
        Ok(Self {
            inputs,
            rows,
            about: Arc::new(about),
        })
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows of a shard.
    pub fn rows_of(&self, shard: Shard) -> u64 {
        let range = self.range(shard.index, shard.count);
        range.end - range.start
    }

    /// How many inputs there are.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The rows of a shard, from 1 on.
    pub(super) fn range(&self, shard: u32, shards: u32) -> Range<u64> {
        let cut = |shard: u32| {
            let rows = u128::from(self.rows) * u128::from(shard) / u128::from(shards);
            u64::try_from(rows).expect("no more than all rows")
        };
        cut(shard - 1)..cut(shard)
    }

    /// The same as parts of inputs; none for a shard without a row.
    pub(super) fn segments(&self, range: &Range<u64>) -> Vec<Segment> {
        let mut before = 0;
        let mut segments = Vec::new();
        for (at, planned) in self.inputs.iter().enumerate() {
            let from = range.start.max(before) - before;
            let to = range.end.min(before + planned.rows).saturating_sub(before);
            if from < to {
                segments.push(Segment {
                    input: planned.input.clone(),
                    at,
                    rows: from..to,
                    before,
                });
            }
            before += planned.rows;
        }
        segments
    }
}

fn failed(input: &Input) -> impl Fn(TableError) -> FilesError + '_ {
    |error| FilesError::of_table(input.shown.as_ref(), error)
}

fn damaged(input: &Input, why: &str) -> FilesError {
    let error = parquet::errors::ParquetError::General(format!("it is damaged ({why})"));
    failed(input)(ParquetFault::from(error).into())
}

/// What a file says of itself.
pub(super) fn about(input: &Input, chunks: &Chunks) -> Result<ParquetMetaData, FilesError> {
    let reader = opened(input, chunks)?;
    Ok(reader.metadata().clone())
}

/// A reader of a file.
pub(super) fn opened(
    input: &Input,
    chunks: &Chunks,
) -> Result<SerializedFileReader<Chunks>, FilesError> {
    let reader = caught(|| SerializedFileReader::new(chunks.clone()));
    let reader = reader.unwrap_or_else(Err);
    reader.map_err(|error| failed(input)(TableError::of(error)))
}

fn planned(
    input: &Input,
    first: &Input,
    expected: &ParquetMetaData,
) -> Result<Planned, FilesError> {
    let chunks = input.open()?;
    let about = about(input, &chunks)?;
    check_codecs(&about, input.shown.as_ref())?;
    let (theirs, ours) = (fields(&about), fields(expected));
    if theirs != ours {
        return Err(FilesError::OtherColumns {
            shown: input.shown.clone(),
            first: first.shown.clone(),
            how: difference(theirs, ours),
        });
    }
    let rows = about
        .row_groups()
        .iter()
        .map(|group| u64::try_from(group.num_rows()));
    let rows: Result<u64, _> = rows.sum();
    Ok(Planned {
        rows: rows.map_err(|_| damaged(input, "fewer rows than none"))?,
        digest: digest(input, &chunks)?,
        input: input.clone(),
    })
}

fn fields(about: &ParquetMetaData) -> &[TypePtr] {
    about.file_metadata().schema().get_fields()
}

/// A hash of what stands at the end of a file.
fn digest(input: &Input, chunks: &Chunks) -> Result<String, FilesError> {
    let read = |at: u64, length: usize| {
        let read = chunks.bytes(at, length);
        read.map_err(|error| inputs::read_error(&input.shown, error))
    };
    let too_short = || damaged(input, "it ends too early");
    let end = input.size.checked_sub(8).ok_or_else(too_short)?;
    let tail = read(end, 8)?;
    let length = u32::from_le_bytes(tail[..4].try_into().expect("four of eight bytes"));
    let start = end.checked_sub(u64::from(length)).ok_or_else(too_short)?;
    let described = read(start, length as usize)?;
    Ok(hex(&Sha256::digest(described)))
}

/// What is different between the columns of two inputs.
fn difference(theirs: &[TypePtr], ours: &[TypePtr]) -> String {
    let named = |fields: &[TypePtr], name: &str| {
        let mut fields = fields.iter();
        fields.find(|field| field.name() == name).cloned()
    };
    for field in ours {
        let name = field.name();
        match named(theirs, name) {
            None => return format!("it has no column `{name}`"),
            Some(other) if other != *field => {
                return format!(
                    "its column `{name}` is {}, and here it is {}",
                    described(field),
                    described(&other)
                );
            }
            Some(_) => {}
        }
    }
    let more = theirs
        .iter()
        .find(|field| named(ours, field.name()).is_none());
    match more {
        Some(field) => format!("here is a column `{}` more", field.name()),
        None => "here they are in another order".to_owned(),
    }
}

/// A column in the words of the format.
fn described(field: &Type) -> String {
    let about = field.get_basic_info();
    let logical = about.logical_type_ref();
    if !field.is_primitive() {
        return match logical {
            Some(LogicalType::List) => "a list".to_owned(),
            Some(LogicalType::Map) => "a map".to_owned(),
            _ => "a structure".to_owned(),
        };
    }
    let kind = field.get_physical_type();
    let logical = logical.map(|logical| format!(" ({logical:?})"));
    let repeated = about.repetition().to_string().to_lowercase();
    format!("{repeated} {kind}{}", logical.unwrap_or_default())
}

/// Checks that the columns that are asked for are there, and that those of the text can hold one.
fn check_text(job: &ShardJob, input: &Input, about: &ParquetMetaData) -> Result<(), FilesError> {
    let path: &Path = input.shown.as_ref();
    let names = names_of(about);
    check_names(&job.job, &names)?;
    let columns = Columns::of_table(&names, &job.job.reading, path)?;
    for name in columns.texts() {
        let at = names.iter().position(|known| **known == *name);
        let field = &fields(about)[at.expect("its name was found among these")];
        if !may_be_text(field) {
            return Err(FilesError::NotText {
                shown: input.shown.clone(),
                name: name.to_owned(),
                what: described(field),
            });
        }
    }
    Ok(())
}

fn may_be_text(field: &Type) -> bool {
    if !field.is_primitive() {
        return false;
    }
    let bytes = [Physical::BYTE_ARRAY, Physical::FIXED_LEN_BYTE_ARRAY];
    // A column of nothing but nulls may have any type, and says so.
    let says = field.get_basic_info().logical_type_ref();
    bytes.contains(&field.get_physical_type()) || matches!(says, Some(LogicalType::Unknown))
}
