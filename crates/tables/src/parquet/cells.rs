//! Converts the values that the library reads to cells, and lists, maps and structs to JSON.

use chrono::{DateTime, NaiveTime};
use parquet::basic::{LogicalType, Repetition, TimeUnit};
use parquet::record::Field;
use parquet::schema::types::Type;
use serde_json::Value;

use crate::Cell;

/// A column's kind, for conversions that the library does not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellKind {
    Plain,
    /// A list, map or struct.
    Nested,
    /// A timestamp, in UTC or in an unknown time zone.
    Time {
        utc: bool,
        nanos: bool,
    },
}

/// Returns the kind of a column.
pub(super) fn kind_of(column: &Type) -> CellKind {
    let metadata = column.get_basic_info();
    let repeated = metadata.has_repetition() && metadata.repetition() == Repetition::REPEATED;
    if !column.is_primitive() || repeated {
        return CellKind::Nested;
    }
    match metadata.logical_type_ref() {
        Some(LogicalType::Timestamp(time)) => CellKind::Time {
            utc: time.is_adjusted_to_u_t_c,
            nanos: time.unit == TimeUnit::NANOS,
        },
        _ => CellKind::Plain,
    }
}

/// Converts a value to a cell. Dates, times and decimals become text.
pub(super) fn cell(value: Field, kind: CellKind) -> Cell {
    match value {
        Field::Null => Cell::Null,
        Field::Str(text) => Cell::Text(text),
        Field::Bytes(bytes) if std::str::from_utf8(bytes.data()).is_err() => {
            Cell::Bytes(bytes.data().to_vec())
        }
        Field::Float(number) if number.is_finite() => Cell::Json(short_float(number)),
        Field::Float16(number) if number.is_finite() => Cell::Json(short_float(number.to_f32())),
        Field::Long(nanos) if matches!(kind, CellKind::Time { nanos: true, .. }) => {
            time_cell(Some(DateTime::from_timestamp_nanos(nanos)), kind)
        }
        Field::TimestampMillis(millis) => time_cell(DateTime::from_timestamp_millis(millis), kind),
        Field::TimestampMicros(micros) => time_cell(DateTime::from_timestamp_micros(micros), kind),
        other => match json(&other) {
            Value::Null => Cell::Null,
            Value::String(text) => Cell::Text(text),
            value => Cell::Json(value.to_string()),
        },
    }
}

/// Formats a float with as few digits as possible.
fn short_float(number: f32) -> String {
    topicmill_core::to_json(&number)
}

/// Formats a timestamp as ISO 8601, with `Z` unless the column is declared as local time.
fn time_cell(at: Option<DateTime<chrono::Utc>>, kind: CellKind) -> Cell {
    let zone = match kind {
        CellKind::Time { utc: false, .. } => "",
        _ => "Z",
    };
    at.map_or(Cell::Null, |at| {
        Cell::Text(format!("{}{zone}", at.format("%Y-%m-%dT%H:%M:%S%.f")))
    })
}

/// Converts a value to JSON, including lists, maps and structs.
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
        // The library formats a whole number as `5.`.
        Field::Decimal(_) => value.to_string().trim_end_matches('.').into(),
        Field::Str(text) => text.clone().into(),
        Field::Bytes(bytes) => match std::str::from_utf8(bytes.data()) {
            Ok(text) => text.into(),
            Err(_) => topicmill_core::hex(bytes.data()).into(),
        },
        Field::Date(days) => date(*days),
        Field::TimeMillis(millis) => time_of_day(i64::from(*millis) * 1_000),
        Field::TimeMicros(micros) => time_of_day(*micros),
        Field::TimestampMillis(_) | Field::TimestampMicros(_) => {
            cell(value.clone(), CellKind::Plain).text().into()
        }
        Field::Group(row) => {
            let columns = row.get_column_iter();
            columns.map(|(name, value)| (name, json(value))).collect()
        }
        Field::ListInternal(list) => list.elements().iter().map(json).collect(),
        Field::MapInternal(map) => {
            let entries = map.entries().iter();
            entries
                .map(|(key, value)| (key_of(key), json(value)))
                .collect()
        }
    }
}

/// Returns the name of a map entry in JSON.
fn key_of(key: &Field) -> String {
    match json(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Formats a date, given in days since 1970.
fn date(days: i32) -> Value {
    DateTime::from_timestamp(i64::from(days) * 86_400, 0)
        .map(|day| day.format("%Y-%m-%d").to_string())
        .into()
}

/// Formats a time of day, given in microseconds since midnight.
fn time_of_day(micros: i64) -> Value {
    let time = || {
        let secs = u32::try_from(micros.div_euclid(1_000_000)).ok()?;
        let nanos = u32::try_from(micros.rem_euclid(1_000_000) * 1_000).ok()?;
        NaiveTime::from_num_seconds_from_midnight_opt(secs, nanos)
    };
    time()
        .map(|time| time.format("%H:%M:%S%.f").to_string())
        .into()
}
