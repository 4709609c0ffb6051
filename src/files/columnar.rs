//! Rows into Parquet, by its column writers.
//!
//! Where all inputs are Parquet of one schema, their columns are copied as they lie there, packed and encoded, so that
//! every type stays what it is, lists and structures too; only ours are written. All other rows come as JSON, which
//! says what a column holds: texts, whole numbers, other numbers, or true and false. What is mixed becomes text, and so
//! do numbers that would come out as other ones.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, ParquetMetaData};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::{ColumnDescPtr, Type, TypePtr};

use super::kept::renamed;
use super::output::{Shape, lines_of, members, plain};
use super::{FilesError, write_error};
use topicmill_tables::ParquetFault;
use topicmill_tables::columnar::{
    ColumnKind, ColumnSlice, ParquetWriter, RowGroup, begin, disk_error, schema_of, write_slices,
};
use topicmill_tables::parquet::{caught, under};

/// Rows of a group: as many as other writers put into one, in powers of ten.
const GROUP_ROWS: usize = 100_000;

/// Bytes of text after which a group ends early, because it is held until then.
const GROUP_BYTES: usize = 64 << 20;

/// The largest number up to which a double holds each whole one: 2⁵³ (IEEE 754, 53 bits of significand).
const WHOLE_IN_DOUBLE: u64 = 1 << 53;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing so far.
    Unknown,
    Bool,
    /// Whole numbers that a double holds, too.
    Int,
    /// Whole numbers of 64 bits, of which a double does not hold each.
    LongInt,
    Float,
    Text,
}

impl Kind {
    /// Of a value as JSON writes it.
    pub(super) fn of(json: &str) -> Self {
        match json.as_bytes().first() {
            Some(b'n') => Self::Unknown,
            Some(b't' | b'f') => Self::Bool,
            Some(b'"' | b'[' | b'{') | None => Self::Text,
            _ => Self::of_number(json),
        }
    }

    fn of_number(json: &str) -> Self {
        match json.parse::<i64>() {
            Ok(whole) if whole.unsigned_abs() <= WHOLE_IN_DOUBLE => Self::Int,
            Ok(_) => Self::LongInt,
            // Above the largest double is only infinity.
            Err(_) if json.contains(['.', 'e', 'E']) && json.parse().is_ok_and(f64::is_finite) => {
                Self::Float
            }
            // More digits than 64 bits hold: they stay.
            Err(_) => Self::Text,
        }
    }
}

/// A column of the output, with the rows of the row group that is being gathered.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    kind: Kind,
    values: ColumnSlice,
    /// 1 for a row that has a value, else 0.
    present: Vec<i16>,
}

impl Column {
    pub(super) fn new(name: String, kind: Kind) -> Self {
        let values = match kind {
            Kind::Bool => ColumnSlice::Boolean(Vec::new()),
            Kind::Int | Kind::LongInt => ColumnSlice::Integer(Vec::new()),
            Kind::Float => ColumnSlice::Number(Vec::new()),
            Kind::Unknown | Kind::Text => ColumnSlice::Text(Vec::new()),
        };
        Self {
            name,
            kind,
            values,
            present: Vec::new(),
        }
    }

    fn schema(&self) -> Result<TypePtr, ParquetError> {
        let kind = match &self.values {
            ColumnSlice::Boolean(_) => ColumnKind::Boolean,
            ColumnSlice::Integer(_) => ColumnKind::Integer,
            ColumnSlice::Number(_) => ColumnKind::Number,
            ColumnSlice::Text(_) => ColumnKind::Text,
        };
        schema_of(&self.name, kind)
    }

    fn write(&self, group: &mut RowGroup<'_>) -> Result<(), ParquetError> {
        write_slices(group, std::iter::once((&self.values, &self.present)))
    }

    fn clear(&mut self) {
        *self = Self::new(std::mem::take(&mut self.name), self.kind);
    }

    /// One of ours.
    pub(super) fn added(name: String) -> Self {
        let kind = match name.as_str() {
            "label" | "outcome" | "error" => Kind::Text,
            "abstained" => Kind::Bool,
            "id" => Kind::Int,
            _ => Kind::Float,
        };
        Self::new(name, kind)
    }

    /// Takes in what another row holds.
    pub(super) fn meets(&mut self, kind: Kind) {
        self.kind = match (self.kind, kind) {
            (one, Kind::Unknown) => one,
            (Kind::Unknown, other) => other,
            (one, other) if one == other => one,
            (Kind::Int | Kind::LongInt, Kind::Int | Kind::LongInt) => Kind::LongInt,
            (Kind::Int | Kind::Float, Kind::Int | Kind::Float) => Kind::Float,
            _ => Kind::Text,
        };
    }

    /// Adds the value of a row; returns how many bytes of text it has.
    fn push(&mut self, json: Option<&str>) -> usize {
        let json = json.filter(|json| *json != "null");
        let mut bytes = 0;
        let is_present = match (&mut self.values, json) {
            (_, None) => false,
            (ColumnSlice::Boolean(values), Some(json)) => {
                values.push(json == "true");
                true
            }
            (ColumnSlice::Integer(values), Some(json)) => {
                json.parse().map(|value| values.push(value)).is_ok()
            }
            (ColumnSlice::Number(values), Some(json)) => {
                json.parse().map(|value| values.push(value)).is_ok()
            }
            (ColumnSlice::Text(values), Some(json)) => {
                let text = plain(json);
                bytes = text.len();
                values.push(text.into_bytes().into());
                true
            }
        };
        self.present.push(i16::from(is_present));
        bytes
    }
}

type Lines<'a> = &'a mut dyn Iterator<Item = io::Result<String>>;

/// The error of a file that is written; one that is read names itself.
fn failed(path: &Path) -> impl Fn(ParquetError) -> FilesError + '_ {
    move |error| write_error(path)(disk_error(error))
}

/// Fills the columns with up to `rows` rows; how many there were.
fn fill(columns: &mut [Column], lines: Lines<'_>, rows: usize, bytes: usize) -> io::Result<usize> {
    for column in &mut *columns {
        column.clear();
    }
    let places: std::collections::HashMap<String, usize> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| (column.name.clone(), at))
        .collect();
    let (mut count, mut held) = (0, 0);
    while count < rows && held < bytes {
        let Some(line) = lines.next().transpose()? else {
            break;
        };
        let mut of_row = vec![None; columns.len()];
        let members = members(&line)?;
        for (name, value) in &members.0 {
            if let Some(place) = places.get(name) {
                of_row[*place] = Some(value.get());
            }
        }
        for (column, value) in columns.iter_mut().zip(of_row) {
            held += column.push(value);
        }
        count += 1;
    }
    Ok(count)
}

/// Writes rows of JSON.
pub(super) fn write(lines: &Path, to: File, columns: &[Column]) -> Result<File, FilesError> {
    let failed = failed(lines);
    let mut columns: Vec<Column> = columns
        .iter()
        .map(|column| Column::new(column.name.clone(), column.kind))
        .collect();
    let fields: Result<Vec<TypePtr>, ParquetError> = columns.iter().map(Column::schema).collect();
    let schema = Type::group_type_builder("schema").with_fields(fields.map_err(&failed)?);
    let schema = Arc::new(schema.build().map_err(&failed)?);
    let mut writer = begin(BufWriter::new(to), schema, None, &[]).map_err(&failed)?;
    let mut rows = lines_of(lines).map_err(write_error(lines))?;
    loop {
        let count = fill(&mut columns, &mut rows, GROUP_ROWS, GROUP_BYTES);
        if count.map_err(write_error(lines))? == 0 {
            break;
        }
        let mut group = writer.next_row_group().map_err(&failed)?;
        for column in &columns {
            column.write(&mut group).map_err(&failed)?;
        }
        group.close().map_err(&failed)?;
    }
    let out = writer.into_inner().map_err(&failed)?;
    out.into_inner()
        .map_err(|error| write_error(lines)(error.into_error()))
}

fn open(path: &Path) -> Result<SerializedFileReader<File>, FilesError> {
    let unreadable = |error: ParquetFault| FilesError::of_table(path, error.into());
    let file = File::open(path).map_err(|error| FilesError::of_table(path, error.into()))?;
    let reader = caught(|| SerializedFileReader::new(file));
    reader
        .unwrap_or_else(Err)
        .map_err(|error| unreadable(error.into()))
}

fn fields(about: &ParquetMetaData) -> &[TypePtr] {
    about.file_metadata().schema().get_fields()
}

/// Whether files are Parquet with the same columns, so that these can be copied.
pub(super) fn are_alike(inputs: &[PathBuf]) -> bool {
    let mut readers = inputs.iter().map(|input| open(input));
    let Some(Ok(first)) = readers.next() else {
        return false;
    };
    readers
        .all(|other| other.is_ok_and(|other| fields(other.metadata()) == fields(first.metadata())))
}

/// Writes our columns next to those of the inputs, which are copied as they are.
pub(super) fn beside_copies(
    lines: &Path,
    to: File,
    shape: &Shape,
    inputs: &[PathBuf],
) -> Result<File, FilesError> {
    let failed = failed(lines);
    let first = open(&inputs[0])?;
    let unread = write_error(lines);
    // Where no column holds an id, each line has the number of its row.
    let numbered = match lines_of(lines).map_err(&unread)?.next() {
        Some(Ok(line)) => line.starts_with("{\"id\":"),
        _ => false,
    };
    let names = numbered.then(|| "id".to_owned()).into_iter();
    let mut added: Vec<Column> = names.chain(shape.added()).map(Column::added).collect();
    let (schema, kept) = schema_beside(first.metadata(), shape, &added).map_err(&failed)?;
    let mut writer = begin(BufWriter::new(to), schema, kept, &[]).map_err(&failed)?;
    let mut rows = lines_of(lines).map_err(&unread)?;
    for input in inputs {
        copy(input, &mut writer, &mut added, &mut rows, lines)?;
    }
    let out = writer.into_inner().map_err(&failed)?;
    out.into_inner().map_err(|error| unread(error.into_error()))
}

/// The schema of an input's columns with ours behind them, and what the file is to say of itself.
fn schema_beside(
    about: &ParquetMetaData,
    shape: &Shape,
    added: &[Column],
) -> Result<(TypePtr, Option<Vec<KeyValue>>), ParquetError> {
    let reserved = shape.reserved();
    let numbered = added.iter().any(|column| column.name == "id");
    let is_ours =
        |name: &str| reserved.iter().any(|ours| ours == name) || (numbered && name == "id");
    let is_theirs = |name: &str| fields(about).iter().any(|theirs| theirs.name() == name);
    let (mut all, mut is_renamed) = (Vec::new(), false);
    for field in fields(about) {
        let name = renamed(field.name(), is_ours, is_theirs);
        if name == field.name() {
            all.push(field.clone());
        } else {
            all.push(under(field, &name)?);
            is_renamed = true;
        }
    }
    for column in added {
        all.push(column.schema()?);
    }
    let schema = Type::group_type_builder(about.file_metadata().schema().name()).with_fields(all);
    Ok((Arc::new(schema.build()?), kept_about(about, is_renamed)))
}

/// What the first input says of itself, without what would be wrong of the output: arrow's list of all columns, which
/// lacks ours and which readers would believe, and what pandas finds again by names, where one has another name now.
fn kept_about(about: &ParquetMetaData, is_renamed: bool) -> Option<Vec<KeyValue>> {
    let all = about.file_metadata().key_value_metadata()?;
    let is_wrong = |key: &str| key == "ARROW:schema" || (is_renamed && key == "pandas");
    let kept = all.iter().filter(|entry| !is_wrong(&entry.key));
    Some(kept.cloned().collect())
}

fn copy(
    input: &Path,
    writer: &mut ParquetWriter,
    added: &mut [Column],
    rows: Lines<'_>,
    lines: &Path,
) -> Result<(), FilesError> {
    let failed = failed(lines);
    let reader = open(input)?;
    let damaged = |why: &str| {
        let error = ParquetError::General(format!("it is damaged ({why})"));
        FilesError::of_table(input, ParquetFault::from(error).into())
    };
    let file = File::open(input).map_err(|error| FilesError::of_table(input, error.into()))?;
    for group in reader.metadata().row_groups() {
        let count = usize::try_from(group.num_rows()).map_err(|_| damaged("no rows"))?;
        let filled = fill(added, rows, count, usize::MAX).map_err(write_error(lines))?;
        if filled != count {
            return Err(damaged("it has not as many rows as it says"));
        }
        let columns: Vec<ColumnDescPtr> = writer.schema_descr().columns().to_vec();
        let mut out = writer.next_row_group().map_err(&failed)?;
        for (chunk, column) in group.columns().iter().zip(columns) {
            let closed = as_closed(chunk, column, group.num_rows()).map_err(&failed)?;
            caught(|| out.append_column(&file, closed))
                .unwrap_or_else(Err)
                .map_err(&failed)?;
        }
        for column in &*added {
            column.write(&mut out).map_err(&failed)?;
        }
        out.close().map_err(&failed)?;
    }
    Ok(())
}

/// A column of an input as if it had just been written, under the name that it gets.
fn as_closed(
    chunk: &ColumnChunkMetaData,
    column: ColumnDescPtr,
    rows: i64,
) -> Result<ColumnCloseResult, ParquetError> {
    let mut metadata = ColumnChunkMetaData::builder(column)
        .set_compression_codec(chunk.compression_codec())
        .set_encodings_mask(*chunk.encodings_mask())
        .set_total_compressed_size(chunk.compressed_size())
        .set_total_uncompressed_size(chunk.uncompressed_size())
        .set_num_values(chunk.num_values())
        .set_data_page_offset(chunk.data_page_offset())
        .set_dictionary_page_offset(chunk.dictionary_page_offset());
    if let Some(statistics) = chunk.statistics() {
        metadata = metadata.set_statistics(statistics.clone());
    }
    Ok(ColumnCloseResult {
        bytes_written: u64::try_from(chunk.compressed_size()).unwrap_or(0),
        rows_written: u64::try_from(rows).unwrap_or(0),
        metadata: metadata.build()?,
        bloom_filter: None,
        // Their places are those in the old file. Both are optional.
        column_index: None,
        offset_index: None,
    })
}
