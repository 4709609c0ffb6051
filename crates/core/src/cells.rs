//! Defines typed, nullable columns of values, which carry query results from the database to table files.

use std::borrow::Cow;

use chrono::{DateTime, SecondsFormat};
use serde::{Serialize, Serializer};

/// The kind of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// UTF-8 text.
    Text,
    /// 64-bit integers.
    Integer,
    /// 64-bit floating-point numbers.
    Number,
    /// Booleans.
    Boolean,
    /// Milliseconds since 1970, UTC.
    Time,
    /// Bytes, as a string of hexadecimal digits.
    Hex,
    /// 32-bit floating-point numbers: an embedding.
    Vector,
}

/// Strings concatenated in one buffer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnTexts {
    /// The concatenated strings.
    pub text: String,
    /// End of each string, as a byte offset into `text`.
    pub ends: Vec<usize>,
}

impl ColumnTexts {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }

    fn get(&self, i: usize) -> &str {
        let begin = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[i]]
    }
}

/// Vectors concatenated in one buffer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ColumnVectors {
    /// The concatenated vectors.
    pub numbers: Vec<f32>,
    /// End of each vector, as an index into `numbers`.
    pub ends: Vec<usize>,
}

impl ColumnVectors {
    fn push(&mut self, vector: &[f32]) {
        self.numbers.extend_from_slice(vector);
        self.ends.push(self.numbers.len());
    }

    fn get(&self, i: usize) -> &[f32] {
        let begin = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.numbers[begin..self.ends[i]]
    }
}

/// The non-NULL values of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnValues {
    /// UTF-8 strings.
    Text(ColumnTexts),
    /// 64-bit integers.
    Integer(Vec<i64>),
    /// 64-bit floating-point numbers.
    Number(Vec<f64>),
    /// Booleans.
    Boolean(Vec<bool>),
    /// Milliseconds since 1970, UTC.
    Time(Vec<i64>),
    /// Embeddings.
    Vector(ColumnVectors),
}

/// A column with one value or NULL for each row.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnCells {
    /// The non-NULL values.
    pub values: ColumnValues,
    /// For each row, 1 if it has a value, 0 if it is NULL (Parquet's definition levels).
    pub present: Vec<i16>,
}

/// The value of a column in one row. In JSON, a non-finite number is null.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColumnCell<'a> {
    /// NULL.
    Null,
    /// A UTF-8 string.
    Text(&'a str),
    /// A 64-bit integer.
    Integer(i64),
    /// A 64-bit floating-point number.
    Number(f64),
    /// A Boolean.
    Boolean(bool),
    /// Milliseconds since 1970, UTC.
    Time(i64),
    /// An embedding.
    Vector(&'a [f32]),
}

impl ColumnCells {
    /// Creates a column without rows.
    pub fn new(kind: ColumnKind) -> Self {
        let values = match kind {
            ColumnKind::Text | ColumnKind::Hex => ColumnValues::Text(ColumnTexts::default()),
            ColumnKind::Integer => ColumnValues::Integer(Vec::new()),
            ColumnKind::Number => ColumnValues::Number(Vec::new()),
            ColumnKind::Boolean => ColumnValues::Boolean(Vec::new()),
            ColumnKind::Time => ColumnValues::Time(Vec::new()),
            ColumnKind::Vector => ColumnValues::Vector(ColumnVectors::default()),
        };
        Self {
            values,
            present: Vec::new(),
        }
    }

    /// Returns the kind of the values; [`ColumnKind::Hex`] becomes text.
    pub fn kind(&self) -> ColumnKind {
        match self.values {
            ColumnValues::Text(_) => ColumnKind::Text,
            ColumnValues::Integer(_) => ColumnKind::Integer,
            ColumnValues::Number(_) => ColumnKind::Number,
            ColumnValues::Boolean(_) => ColumnKind::Boolean,
            ColumnValues::Time(_) => ColumnKind::Time,
            ColumnValues::Vector(_) => ColumnKind::Vector,
        }
    }

    /// Adds a row. Returns false, and adds nothing, if the value is of a different kind.
    pub fn push(&mut self, cell: ColumnCell<'_>) -> bool {
        match (&mut self.values, cell) {
            (_, ColumnCell::Null) => {
                self.present.push(0);
                return true;
            }
            (ColumnValues::Text(texts), ColumnCell::Text(text)) => texts.push(text),
            (ColumnValues::Integer(values), ColumnCell::Integer(value))
            | (ColumnValues::Time(values), ColumnCell::Time(value)) => values.push(value),
            (ColumnValues::Number(values), ColumnCell::Number(value)) => values.push(value),
            (ColumnValues::Boolean(values), ColumnCell::Boolean(value)) => values.push(value),
            (ColumnValues::Vector(vectors), ColumnCell::Vector(vector)) => vectors.push(vector),
            _ => return false,
        }
        self.present.push(1);
        true
    }

    /// Returns the value of each row.
    pub fn cells(&self) -> impl Iterator<Item = ColumnCell<'_>> {
        let mut next = 0;
        self.present.iter().map(move |present| {
            if *present == 0 {
                return ColumnCell::Null;
            }
            let i = next;
            next += 1;
            match &self.values {
                ColumnValues::Text(texts) => ColumnCell::Text(texts.get(i)),
                ColumnValues::Integer(values) => ColumnCell::Integer(values[i]),
                ColumnValues::Number(values) => ColumnCell::Number(values[i]),
                ColumnValues::Boolean(values) => ColumnCell::Boolean(values[i]),
                ColumnValues::Time(values) => ColumnCell::Time(values[i]),
                ColumnValues::Vector(vectors) => ColumnCell::Vector(vectors.get(i)),
            }
        })
    }
}

impl<'a> ColumnCell<'a> {
    /// Formats the value for a CSV cell; NULL is empty, and a vector is a JSON array.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Null => Cow::Borrowed(""),
            Self::Text(text) => Cow::Borrowed(text),
            Self::Integer(number) => Cow::Owned(number.to_string()),
            Self::Number(number) => Cow::Owned(number.to_string()),
            Self::Boolean(is) => Cow::Borrowed(if is { "true" } else { "false" }),
            Self::Time(millis) => {
                let time = DateTime::from_timestamp_millis(millis).unwrap_or_default();
                Cow::Owned(time.to_rfc3339_opts(SecondsFormat::Secs, true))
            }
            Self::Vector(vector) => {
                let numbers: Vec<String> = vector.iter().map(f32::to_string).collect();
                Cow::Owned(format!("[{}]", numbers.join(",")))
            }
        }
    }
}

impl Serialize for ColumnCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Number(number) => serializer.serialize_f64(*number),
            Self::Boolean(is) => serializer.serialize_bool(*is),
            Self::Vector(vector) => vector.serialize(serializer),
            Self::Text(_) | Self::Time(_) => serializer.serialize_str(&self.text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_accepts_values_of_its_kind_and_keeps_null_rows() {
        let mut column = ColumnCells::new(ColumnKind::Time);
        assert!(column.push(ColumnCell::Null) && column.push(ColumnCell::Time(1_500)));
        assert!(!column.push(ColumnCell::Integer(1)));
        let cells: Vec<_> = column.cells().collect();
        let json = serde_json::to_string(&cells).unwrap();
        assert_eq!(json, r#"[null,"1970-01-01T00:00:01Z"]"#);
    }
}
