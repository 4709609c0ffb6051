//! The types of output columns, inferred from JSON values.

use topicmill_core::ColumnKind;

/// Every integer up to this one is exact as a double: 2⁵³ (IEEE 754, 53 bits of significand).
const WHOLE_IN_DOUBLE: u64 = 1 << 53;

/// The inferred type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::score_files) struct Inferred {
    /// `None` before the first value.
    kind: Option<ColumnKind>,
    /// True if an integer exceeds [`WHOLE_IN_DOUBLE`].
    is_long: bool,
}

impl Inferred {
    /// Infers the type of a JSON value.
    pub fn from_json(json: &str) -> Self {
        let whole = json.parse::<i64>().ok();
        let kind = match json.as_bytes().first() {
            Some(b'n') => None,
            Some(b't' | b'f') => Some(ColumnKind::Boolean),
            Some(b'"' | b'[' | b'{') | None => Some(ColumnKind::Text),
            _ if whole.is_some() => Some(ColumnKind::Integer),
            // Values above the largest double parse as infinity.
            _ if json.contains(['.', 'e', 'E']) && json.parse().is_ok_and(f64::is_finite) => {
                Some(ColumnKind::Number)
            }
            // Integers that need more than 64 bits are kept as strings.
            _ => Some(ColumnKind::Text),
        };
        Self {
            kind,
            is_long: whole.is_some_and(|whole| whole.unsigned_abs() > WHOLE_IN_DOUBLE),
        }
    }
}

/// An output column.
#[derive(Debug)]
pub(in crate::score_files) struct OutputColumn {
    pub name: String,
    pub inferred: Inferred,
}

impl OutputColumn {
    /// Creates one of the added columns.
    pub fn added(name: String) -> Self {
        let kind = match name.as_str() {
            "label" | "outcome" | "error" => ColumnKind::Text,
            "abstained" => ColumnKind::Boolean,
            "id" => ColumnKind::Integer,
            _ => ColumnKind::Number,
        };
        let inferred = Inferred {
            kind: Some(kind),
            is_long: false,
        };
        Self { name, inferred }
    }

    /// Merges the type of a value from another row.
    pub fn merge(&mut self, other: Inferred) {
        use ColumnKind::{Integer, Number, Text};
        let is_long = self.inferred.is_long || other.is_long;
        let kind = match (self.inferred.kind, other.kind) {
            (kind, None) | (None, kind) => kind,
            (Some(one), Some(other)) if one == other => Some(one),
            (Some(Integer), Some(Number)) | (Some(Number), Some(Integer)) if !is_long => {
                Some(Number)
            }
            _ => Some(Text),
        };
        self.inferred = Inferred { kind, is_long };
    }

    /// Returns the name and the kind for the file; a column without values is text.
    pub fn described(&self) -> (&str, ColumnKind) {
        (&self.name, self.inferred.kind.unwrap_or(ColumnKind::Text))
    }
}
