//! Values from both databases, and a digest for comparing their rows.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sqlx::{ColumnIndex, Database, Decode, Row, Type};

use super::super::{Result, StoreError};
use super::shape::{SqlKind, TableShape};

/// A value. Booleans are integers, times are microseconds since 1970, and JSON and lists of numbers are text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SqlValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// Reads the values from a row that a SELECT from [`TableShape`] returned.
pub(super) fn cells<R>(row: &R, shape: &TableShape) -> Result<Vec<SqlValue>, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    for<'r> i64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> f64: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> String: Decode<'r, R::Database> + Type<R::Database>,
    for<'r> Vec<u8>: Decode<'r, R::Database> + Type<R::Database>,
{
    let is_text = <R::Database as Database>::NAME == <sqlx::Sqlite as Database>::NAME;
    let cell = |(at, (name, kind)): (usize, &(String, SqlKind))| {
        Ok(match kind {
            SqlKind::Time if is_text => match row.try_get::<Option<String>, _>(at)? {
                Some(text) => SqlValue::Integer(micros(&text).ok_or_else(|| {
                    let message = format!("`{text}` in {}.{name} is not a time", shape.name);
                    sqlx::Error::Decode(message.into())
                })?),
                None => SqlValue::Null,
            },
            SqlKind::Integer | SqlKind::Flag | SqlKind::Time => row
                .try_get::<Option<i64>, _>(at)?
                .map_or(SqlValue::Null, SqlValue::Integer),
            SqlKind::Real => row
                .try_get::<Option<f64>, _>(at)?
                .map_or(SqlValue::Null, SqlValue::Real),
            SqlKind::Bytes => row
                .try_get::<Option<Vec<u8>>, _>(at)?
                .map_or(SqlValue::Null, SqlValue::Bytes),
            SqlKind::Text | SqlKind::Json | SqlKind::Reals => row
                .try_get::<Option<String>, _>(at)?
                .map_or(SqlValue::Null, SqlValue::Text),
        })
    };
    shape.columns.iter().enumerate().map(cell).collect()
}

fn micros(text: &str) -> Option<i64> {
    Some(DateTime::parse_from_rfc3339(text).ok()?.timestamp_micros())
}

/// Formats a time as topicmill stores it in SQLite.
fn time_text(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros)
        .unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::AutoSi, false)
}

/// Writes a row in COPY's text format (<https://www.postgresql.org/docs/current/sql-copy.html>).
pub(super) fn push_cells(lines: &mut Vec<u8>, shape: &TableShape, row: &[SqlValue]) -> Result<()> {
    for (at, ((name, kind), cell)) in shape.columns.iter().zip(row).enumerate() {
        if at > 0 {
            lines.push(b'\t');
        }
        match (kind, cell) {
            (_, SqlValue::Null) => lines.extend(b"\\N"),
            (SqlKind::Flag, SqlValue::Integer(flag)) => {
                lines.push(if *flag == 0 { b'f' } else { b't' });
            }
            (SqlKind::Time, SqlValue::Integer(micros)) => lines.extend(time_text(*micros).bytes()),
            (_, SqlValue::Integer(number)) => lines.extend(number.to_string().bytes()),
            (_, SqlValue::Real(number)) => lines.extend(format!("{number:e}").bytes()),
            (_, SqlValue::Bytes(bytes)) => {
                lines.extend(b"\\\\x");
                lines.extend(topicmill_score::hex(bytes).bytes());
            }
            (SqlKind::Reals, SqlValue::Text(list)) => {
                lines.extend(list.replace('[', "{").replace(']', "}").bytes());
            }
            (_, SqlValue::Text(text)) => {
                if text.contains('\0') {
                    return Err(StoreError::NotCopyable {
                        table: shape.name.clone(),
                        detail: format!(
                            "its `{name}` column contains NUL, which PostgreSQL cannot store"
                        ),
                    });
                }
                for byte in text.bytes() {
                    match byte {
                        b'\\' => lines.extend(b"\\\\"),
                        b'\n' => lines.extend(b"\\n"),
                        b'\r' => lines.extend(b"\\r"),
                        b'\t' => lines.extend(b"\\t"),
                        byte => lines.push(byte),
                    }
                }
            }
        }
    }
    lines.push(b'\n');
    Ok(())
}

/// A digest of rows that does not depend on their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) rows: u64,
    pub(super) sum: u128,
}

impl Digest {
    pub(super) fn add(&mut self, shape: &TableShape, row: &[SqlValue]) {
        let mut hash = Sha256::new();
        for ((_, kind), cell) in shape.columns.iter().zip(row) {
            match (kind, cell) {
                (_, SqlValue::Null) => hash.update([0]),
                (_, SqlValue::Integer(number)) => {
                    hash.update([1]);
                    hash.update(number.to_le_bytes());
                }
                (_, SqlValue::Real(number)) => real(&mut hash, *number),
                (SqlKind::Reals, SqlValue::Text(list)) => {
                    hash.update([5]);
                    let numbers = list.trim_matches(['[', ']']).split(',');
                    for number in numbers.filter_map(|number| number.trim().parse().ok()) {
                        real(&mut hash, number);
                    }
                }
                (SqlKind::Json, SqlValue::Text(text)) => {
                    hash.update([6]);
                    match serde_json::from_str::<Value>(text) {
                        Ok(value) => hash.update(canonical(&value)),
                        Err(_) => hash.update(text),
                    }
                }
                (_, SqlValue::Text(text)) => bytes(&mut hash, 3, text.as_bytes()),
                (_, SqlValue::Bytes(held)) => bytes(&mut hash, 4, held),
            }
        }
        let hash = hash.finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&hash[..16]);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(u128::from_le_bytes(first));
    }
}

fn real(hash: &mut Sha256, number: f64) {
    hash.update([2]);
    hash.update(number.to_bits().to_le_bytes());
}

fn bytes(hash: &mut Sha256, kind: u8, bytes: &[u8]) {
    hash.update([kind]);
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Formats JSON canonically because PostgreSQL sorts keys and writes small numbers without an exponent.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            let fields: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(canonical).collect();
            format!("[{}]", values.join(","))
        }
        Value::Number(number) => match number.as_f64() {
            // Two forms of a number may parse to adjacent floats.
            Some(number) => format!("{number:.12e}"),
            None => number.to_string(),
        },
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kinds: &[SqlKind]) -> TableShape {
        TableShape {
            name: "t".into(),
            columns: kinds.iter().map(|kind| ("c".to_owned(), *kind)).collect(),
        }
    }

    #[test]
    fn special_characters_in_a_line_are_escaped() {
        let shape = shape(&[
            SqlKind::Text,
            SqlKind::Bytes,
            SqlKind::Flag,
            SqlKind::Time,
            SqlKind::Reals,
            SqlKind::Real,
        ]);
        let row = [
            SqlValue::Text("a\tb\nc\\N".into()),
            SqlValue::Bytes(vec![0, 255]),
            SqlValue::Integer(1),
            SqlValue::Integer(1_500_000),
            SqlValue::Text("[0.5,1e-20]".into()),
            SqlValue::Null,
        ];
        let mut lines = Vec::new();
        push_cells(&mut lines, &shape, &row).unwrap();
        let line =
            "a\\tb\\nc\\\\N\t\\\\x00ff\tt\t1970-01-01T00:00:01.500+00:00\t{0.5,1e-20}\t\\N\n";
        assert_eq!(String::from_utf8(lines).unwrap(), line);
    }

    #[test]
    fn digests_compare_values_and_not_formats() {
        let shape = shape(&[SqlKind::Json, SqlKind::Reals]);
        let of = |json: &str, list: &str| {
            let mut digest = Digest::default();
            digest.add(
                &shape,
                &[SqlValue::Text(json.into()), SqlValue::Text(list.into())],
            );
            digest
        };
        assert_eq!(
            of(r#"{"b":1e-7,"a":[1,null]}"#, "[0.1,1e-20]"),
            of(r#"{"a": [1, null], "b": 0.0000001}"#, "[0.1, 1.0e-20]")
        );
        assert_ne!(of("{}", "[0.1]"), of("{}", "[0.10000000000000002]"));
    }

    #[test]
    fn a_nul_is_rejected_with_its_table() {
        let error = push_cells(
            &mut Vec::new(),
            &shape(&[SqlKind::Text]),
            &[SqlValue::Text("a\0".into())],
        );
        let message = error.unwrap_err().to_string();
        assert!(
            message.contains("NUL") && message.contains("`t`"),
            "{message}"
        );
    }
}
