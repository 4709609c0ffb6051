//! Rows of Parquet.
//!
//! The reader is a library's, which takes what a file says of itself for granted: so the sizes of its pages are looked
//! at first, and what panics at a broken one is an error here.

use std::cell::Cell as Flag;
use std::collections::HashSet;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use chrono::{DateTime, NaiveTime};
use parquet::basic::{LogicalType, TimeUnit};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use parquet::record::Field;
use parquet::record::reader::RowIter;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use serde_json::Value;

use super::csv::unique;
use super::{Cell, ParquetFault, Row, Rows, TableError, pages};

thread_local! {
    static CATCHES: Flag<bool> = const { Flag::new(false) };
}

/// Whether a panic of this thread is about to become an error, so that nobody need hear of it.
pub fn catches_panics() -> bool {
    CATCHES.get()
}

/// Makes an error of a panic: of 2,500 files with wrong bytes, six made the library panic.
///
/// # Errors
/// When `work` panics.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, ParquetError> {
    // The program's panic hook asks for this flag, so that nobody reads about a bug that is none.
    CATCHES.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(false);
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        ParquetError::General(format!("it is damaged ({})", text.unwrap_or("no reason")))
    })
}

/// The columns of the file that hold these fields of its schema: a field that is a group has several.
fn leaves_of(schema: &Type, fields: &[usize]) -> Vec<usize> {
    fn count(field: &Type) -> usize {
        if field.is_primitive() {
            1
        } else {
            field.get_fields().iter().map(|field| count(field)).sum()
        }
    }
    let (mut leaves, mut next) = (Vec::new(), 0);
    for (at, field) in schema.get_fields().iter().enumerate() {
        if fields.contains(&at) {
            leaves.push(next);
        }
        next += count(field);
    }
    leaves
}

/// The rows of some fields of a file, after a look at the pages that hold them.
///
/// # Errors
/// When the file is damaged, or its pages would not fit into memory.
pub fn rows_of(
    file: &File,
    reader: SerializedFileReader<File>,
    fields: &[usize],
) -> Result<RowIter<'static>, ParquetFault> {
    let schema = reader.metadata().file_metadata().schema();
    let leaves = leaves_of(schema, fields);
    pages::check(file, reader.metadata(), &leaves)?;
    let columns = schema.get_fields();
    let fields = fields.iter().map(|at| columns[*at].clone()).collect();
    let projection = Type::group_type_builder(schema.name()).with_fields(fields);
    let projection = projection.build()?;
    Ok(RowIter::from_file_into(Box::new(reader)).project(Some(projection))?)
}

/// The names of fields; the second of two alike gets a number, as in CSV.
pub fn distinct_names(fields: &[TypePtr]) -> Vec<Arc<str>> {
    let mut taken: HashSet<Arc<str>> = HashSet::with_capacity(fields.len());
    let named = fields.iter().map(|field| {
        let name: Arc<str> = unique(field.name(), |name| taken.contains(name)).into();
        taken.insert(name.clone());
        name
    });
    named.collect()
}

/// A field under another name.
///
/// # Errors
/// Where the format knows no such field.
pub fn under(field: &Type, name: &str) -> Result<TypePtr, ParquetError> {
    let about = field.get_basic_info();
    let id = about.has_id().then(|| about.id());
    let logical = about.logical_type_ref().cloned();
    let renamed = if let Type::PrimitiveType {
        physical_type,
        type_length,
        scale,
        precision,
        ..
    } = field
    {
        Type::primitive_type_builder(name, *physical_type)
            .with_repetition(about.repetition())
            .with_converted_type(about.converted_type())
            .with_logical_type(logical)
            .with_length(*type_length)
            .with_precision(*precision)
            .with_scale(*scale)
            .with_id(id)
            .build()?
    } else {
        Type::group_type_builder(name)
            .with_repetition(about.repetition())
            .with_converted_type(about.converted_type())
            .with_logical_type(logical)
            .with_fields(field.get_fields().to_vec())
            .with_id(id)
            .build()?
    };
    Ok(Arc::new(renamed))
}

/// The schema with distinct names, where it has two alike.
fn distinct(schema: &Type) -> Result<Option<Type>, ParquetError> {
    let fields = schema.get_fields();
    let names = distinct_names(fields);
    let renamed = || fields.iter().zip(&names);
    if renamed().all(|(field, name)| field.name() == &**name) {
        return Ok(None);
    }
    let fields: Result<Vec<TypePtr>, ParquetError> = renamed()
        .map(|(field, name)| {
            if field.name() == &**name {
                Ok(field.clone())
            } else {
                under(field, name)
            }
        })
        .collect();
    let schema = Type::group_type_builder(schema.name()).with_fields(fields?);
    schema.build().map(Some)
}

/// What the values of a column are beyond what the library says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Times of day and calendar, in UTC or wherever they were written down.
    Time {
        utc: bool,
        nanos: bool,
    },
}

fn kind_of(column: &Type) -> Kind {
    match column.get_basic_info().logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => Kind::Time {
            utc: time.is_adjusted_to_u_t_c,
            nanos: time.unit == TimeUnit::NANOS,
        },
        _ => Kind::Plain,
    }
}

/// The rows of a Parquet file; only the columns that are wanted are read.
pub struct Parquet {
    rows: RowIter<'static>,
    /// Names of all columns.
    names: Vec<Arc<str>>,
    /// Those that are read.
    read: Vec<(Arc<str>, Kind)>,
    number: u64,
}

impl Parquet {
    /// Reads what the file says of itself, and asks which columns are wanted.
    ///
    /// # Errors
    /// When the file is not Parquet, and where `wanted` fails.
    pub fn new<E: From<TableError>>(
        file: &File,
        wanted: impl FnOnce(&[Arc<str>]) -> Result<Vec<usize>, E>,
    ) -> Result<Self, E> {
        let fault = |error: ParquetError| E::from(TableError::of(error));
        // The library takes the file away, and the sizes of its pages are read next to it.
        let again = || file.try_clone().map_err(|error| E::from(error.into()));
        let (pages, file) = (again()?, again()?);
        let mut reader = caught(|| SerializedFileReader::new(file))
            .unwrap_or_else(Err)
            .map_err(fault)?;
        // The library finds columns by their names, and of two alike it would read the last one twice.
        let schema = distinct(reader.metadata().file_metadata().schema());
        if let Some(schema) = schema.map_err(fault)? {
            let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
            let options = ReadOptionsBuilder::new().with_parquet_schema(schema);
            let file = again()?;
            let opened = caught(|| SerializedFileReader::new_with_options(file, options.build()));
            reader = opened.unwrap_or_else(Err).map_err(fault)?;
        }
        let about = reader.metadata().file_metadata().schema_descr_ptr();
        let columns = about.root_schema().get_fields();
        let names: Vec<Arc<str>> = columns.iter().map(|column| column.name().into()).collect();
        let mut wanted = wanted(&names)?;
        // The library gives columns in the order of the file.
        wanted.sort_unstable();
        wanted.dedup();
        let rows = caught(|| rows_of(&pages, reader, &wanted));
        let rows = rows
            .unwrap_or_else(|panic| Err(panic.into()))
            .map_err(|error| E::from(error.into()))?;
        let read = wanted
            .iter()
            .map(|at| (names[*at].clone(), kind_of(&columns[*at])));
        Ok(Self {
            rows,
            read: read.collect(),
            names,
            number: 0,
        })
    }
}

impl Rows for Parquet {
    fn names(&self) -> Option<&[Arc<str>]> {
        Some(&self.names)
    }

    fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        let Self { rows, read, .. } = self;
        // A value can be one that the library writes nothing for, but a panic.
        let next = caught(|| {
            let row = rows.next()?;
            Some(row.map(|row| {
                let cells = row.into_columns().into_iter().zip(&*read);
                let cells =
                    cells.map(|((_, value), (name, kind))| (name.clone(), cell(&value, *kind)));
                cells.collect()
            }))
        });
        let cells = match next.unwrap_or_else(|panic| Some(Err(panic))) {
            None => return Ok(None),
            Some(Ok(cells)) => cells,
            Some(Err(error)) => {
                // What the library says may quote what the file holds.
                let what = match &error {
                    ParquetError::General(said) if said.contains("BYTE_ARRAY as String") => {
                        "a text is not UTF-8, or it is damaged,"
                    }
                    _ => "it is damaged",
                };
                if let TableError::Io(error) = TableError::of(error) {
                    return Err(error.into());
                }
                let why = format!("{what} behind row {}", self.number);
                return Err(ParquetFault::from(ParquetError::General(why)).into());
            }
        };
        self.number += 1;
        Ok(Some(Row {
            line: self.number,
            cells,
            problem: None,
        }))
    }
}

/// A value as a cell: what JSON has no word for as the text that people write.
fn cell(value: &Field, kind: Kind) -> Cell {
    match value {
        Field::Null => Cell::Null,
        Field::Str(text) => Cell::Text(text.clone()),
        Field::Bytes(bytes) if std::str::from_utf8(bytes.data()).is_err() => {
            Cell::Bytes(bytes.data().to_vec())
        }
        Field::Float(number) if number.is_finite() => Cell::Json(short(*number)),
        Field::Float16(number) if number.is_finite() => Cell::Json(short(number.to_f32())),
        Field::Long(nanos) if matches!(kind, Kind::Time { nanos: true, .. }) => {
            Cell::Text(time(DateTime::from_timestamp_nanos(*nanos), kind))
        }
        Field::TimestampMillis(millis) => {
            let at = DateTime::from_timestamp_millis(*millis);
            at.map_or(Cell::Null, |at| Cell::Text(time(at, kind)))
        }
        Field::TimestampMicros(micros) => {
            let at = DateTime::from_timestamp_micros(*micros);
            at.map_or(Cell::Null, |at| Cell::Text(time(at, kind)))
        }
        other => match json(other) {
            Value::Null => Cell::Null,
            Value::String(text) => Cell::Text(text),
            value => Cell::Json(value.to_string()),
        },
    }
}

/// A number with no more digits than it needs.
fn short(number: f32) -> String {
    serde_json::to_string(&number).expect("a finite number is JSON")
}

/// A time as ISO 8601 writes it; in UTC where the column says so or says nothing.
fn time(at: DateTime<chrono::Utc>, kind: Kind) -> String {
    let zone = if kind == Kind::Plain || matches!(kind, Kind::Time { utc: true, .. }) {
        "Z"
    } else {
        ""
    };
    format!("{}{zone}", at.format("%Y-%m-%dT%H:%M:%S%.f"))
}

/// A value as JSON, lists and structures too.
fn json(value: &Field) -> Value {
    match value {
        Field::Null => Value::Null,
        Field::Bool(flag) => (*flag).into(),
        Field::Byte(number) => (*number).into(),
        Field::Short(number) => (*number).into(),
        Field::Int(number) => (*number).into(),
        Field::Long(number) => (*number).into(),
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Float16(number) => number.to_f32().into(),
        Field::Float(number) => (*number).into(),
        Field::Double(number) => (*number).into(),
        // The library writes `5.` where nothing stands behind the point.
        Field::Decimal(_) => value.to_string().trim_end_matches('.').into(),
        Field::Str(text) => text.clone().into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => topicmill_score::hex(bytes.data()).into(),
        },
        Field::Date(days) => day(*days),
        Field::TimeMillis(millis) => moment(i64::from(*millis) * 1_000),
        Field::TimeMicros(micros) => moment(*micros),
        Field::TimestampMillis(_) | Field::TimestampMicros(_) => {
            cell(value, Kind::Plain).text().into()
        }
        Field::Group(row) => row
            .get_column_iter()
            .map(|(name, value)| (name.clone(), json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Field::ListInternal(list) => list.elements().iter().map(json).collect(),
        Field::MapInternal(map) => map
            .entries()
            .iter()
            .map(|(key, value)| (key_of(key), json(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

fn key_of(key: &Field) -> String {
    match json(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn day(days: i32) -> Value {
    let at = DateTime::from_timestamp(i64::from(days) * 86_400, 0);
    at.map(|at| at.format("%Y-%m-%d").to_string()).into()
}

fn moment(micros: i64) -> Value {
    let secs = u32::try_from(micros.div_euclid(1_000_000)).ok();
    let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1_000).ok();
    let at = secs.zip(nanos);
    let at =
        at.and_then(|(secs, nanos)| NaiveTime::from_num_seconds_from_midnight_opt(secs, nanos));
    at.map(|at| at.format("%H:%M:%S%.f").to_string()).into()
}
