//! Rows as Parquet, in row groups that fit into memory.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::schema::types::Type;

use super::columns::{Column, Kind};
use super::row::Cell;
use crate::tables::columnar::{
    ColumnBuffer, ColumnKind, ColumnValue, ParquetWriter, begin, disk_error,
};

/// Rows of a row group: what readers such as `DuckDB` take at a time.
const ROWS_A_GROUP: usize = 100_000;
/// Bytes of text after which a row group ends early; they are in memory until then.
const BYTES_A_GROUP: usize = 48 << 20;

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    file: ParquetWriter,
    columns: Vec<ColumnBuffer>,
    rows: usize,
    bytes: usize,
}

impl Kind {
    fn in_parquet(self) -> ColumnKind {
        match self {
            Self::Text => ColumnKind::Text,
            Self::Integer => ColumnKind::Integer,
            Self::Number => ColumnKind::Number,
            Self::Boolean => ColumnKind::Boolean,
            Self::Time => ColumnKind::Time,
        }
    }
}

impl ParquetFile {
    pub fn new(to: BufWriter<File>, columns: &[Column]) -> io::Result<Self> {
        let buffer =
            |column: &Column| ColumnBuffer::new(column.name.clone(), column.kind.in_parquet());
        let columns: Vec<ColumnBuffer> = columns.iter().map(buffer).collect();
        let begun = || {
            let fields = columns.iter().map(ColumnBuffer::schema);
            let fields = fields.collect::<Result<_, _>>()?;
            let schema = Type::group_type_builder("posts").with_fields(fields);
            begin(to, Arc::new(schema.build()?), None)
        };
        Ok(Self {
            file: begun().map_err(disk_error)?,
            columns,
            rows: 0,
            bytes: 0,
        })
    }

    pub fn add(&mut self, row: Vec<Cell>) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            self.bytes += column.push(match cell {
                Cell::Null => ColumnValue::Null,
                Cell::Text(text) => ColumnValue::Text(text),
                Cell::Integer(number) => ColumnValue::Integer(number),
                Cell::Number(number) => ColumnValue::Number(number),
                Cell::Boolean(is) => ColumnValue::Boolean(is),
                Cell::Time(time) => ColumnValue::Integer(time.timestamp_millis()),
            });
        }
        self.rows += 1;
        if self.rows >= ROWS_A_GROUP || self.bytes >= BYTES_A_GROUP {
            self.group().map_err(disk_error)?;
        }
        Ok(())
    }

    /// Writes what is gathered.
    fn group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            column.write(&mut group)?;
            column.clear();
        }
        group.close()?;
        (self.rows, self.bytes) = (0, 0);
        Ok(())
    }

    pub fn end(mut self) -> io::Result<BufWriter<File>> {
        if self.rows > 0 {
            self.group().map_err(disk_error)?;
        }
        self.file.into_inner().map_err(disk_error)
    }
}
