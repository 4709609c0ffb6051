//! Some rows of a Parquet row group, copied with every type as it is.
//!
//! Pages hold many rows, so a column that loses rows is read and written again: value by value, with the levels that say
//! which value belongs to which row, so that lists and structures come out as they went in.

use std::fs::File;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedColumnWriter;
use parquet::schema::types::ColumnDescriptor;

use crate::tables::columnar::RowGroup;
use crate::tables::parquet::caught;

/// Rows that are held at a time.
const ROWS: usize = 4096;

/// Why rows cannot be copied.
pub(super) enum Failed {
    /// They cannot be read.
    Read(ParquetError),
    /// They cannot be written.
    Write(ParquetError),
}

impl From<Failed> for ParquetError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Read(error) | Failed::Write(error) => error,
        }
    }
}

/// Copies the columns of a row group, of each row that `stays`.
pub(super) fn copy(
    reader: &SerializedFileReader<File>,
    group: usize,
    stays: &[bool],
    out: &mut RowGroup<'_>,
) -> Result<(), ParquetError> {
    let lacking = || ParquetError::General("a column is missing".to_owned());
    caught(|| {
        let group = reader.get_row_group(group)?;
        for at in 0..group.num_columns() {
            let about = group.metadata().column(at).column_descr();
            let mut from = group.get_column_reader(at)?;
            let mut to = out.next_column()?.ok_or_else(lacking)?;
            append(&mut from, about, stays, ROWS, &mut to)?;
            to.close()?;
        }
        Ok(())
    })
    .unwrap_or_else(Err)
}

/// Copies the rows of a column that stay, `batch` at a time.
pub(super) fn append(
    from: &mut ColumnReader,
    about: &ColumnDescriptor,
    stays: &[bool],
    batch: usize,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), Failed> {
    match from {
        ColumnReader::BoolColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::Int32ColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::Int64ColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::Int96ColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::FloatColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::DoubleColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::ByteArrayColumnReader(from) => append_typed(from, about, stays, batch, to),
        ColumnReader::FixedLenByteArrayColumnReader(from) => {
            append_typed(from, about, stays, batch, to)
        }
    }
}

fn append_typed<T: DataType>(
    from: &mut ColumnReaderImpl<T>,
    about: &ColumnDescriptor,
    stays: &[bool],
    batch: usize,
    to: &mut SerializedColumnWriter<'_>,
) -> Result<(), Failed> {
    let too_few = || {
        let why = "it is damaged (a column has fewer rows than its row group)".to_owned();
        Failed::Read(ParquetError::General(why))
    };
    let (most_def, most_rep) = (about.max_def_level(), about.max_rep_level());
    let (mut values, mut defs, mut reps) = (Vec::new(), Vec::new(), Vec::new());
    for stays in stays.chunks(batch.max(1)) {
        if !stays.contains(&true) {
            // Whole pages of them are passed over as they lie there.
            let passed = from.skip_records(stays.len()).map_err(Failed::Read)?;
            if passed < stays.len() {
                return Err(too_few());
            }
            continue;
        }
        let mut read = 0;
        values.clear();
        defs.clear();
        reps.clear();
        while read < stays.len() {
            let (rows, _, _) = from
                .read_records(
                    stays.len() - read,
                    (most_def > 0).then_some(&mut defs),
                    (most_rep > 0).then_some(&mut reps),
                    &mut values,
                )
                .map_err(Failed::Read)?;
            if rows == 0 {
                return Err(too_few());
            }
            read += rows;
        }
        let write =
            |values: &[T::T], defs: &[i16], reps: &[i16], to: &mut SerializedColumnWriter<'_>| {
                let written = to.typed::<T>().write_batch(
                    values,
                    (most_def > 0).then_some(defs),
                    (most_rep > 0).then_some(reps),
                );
                written.map_err(Failed::Write)
            };
        if stays.contains(&false) {
            let rows = Rows {
                stays,
                defs: &defs,
                reps: &reps,
                most_def,
            };
            let (values, defs, reps) = rows.that_stay(&values);
            write(&values, &defs, &reps, to)?;
        } else {
            write(&values, &defs, &reps, to)?;
        }
    }
    Ok(())
}

/// Values of rows, of which some stay.
struct Rows<'a> {
    stays: &'a [bool],
    /// How much of a value is there; empty where all of each is.
    defs: &'a [i16],
    /// Whether a value begins a row; empty where each does.
    reps: &'a [i16],
    most_def: i16,
}

impl Rows<'_> {
    /// The values and levels of the rows that stay.
    fn that_stay<V: Clone>(&self, values: &[V]) -> (Vec<V>, Vec<i16>, Vec<i16>) {
        let (mut kept, mut defs, mut reps) = (Vec::new(), Vec::new(), Vec::new());
        let (mut row, mut value) = (0, 0);
        // Without levels each value is a row.
        let levels = self.defs.len().max(values.len());
        for level in 0..levels {
            let begins = self.reps.get(level).is_none_or(|rep| *rep == 0);
            row += usize::from(begins);
            let stays = self.stays[row - 1];
            let is_there = self.defs.get(level).is_none_or(|def| *def == self.most_def);
            if stays {
                defs.extend(self.defs.get(level));
                reps.extend(self.reps.get(level));
                kept.extend(values.get(value).filter(|_| is_there).cloned());
            }
            value += usize::from(is_there);
        }
        (kept, defs, reps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_with_their_rows() {
        let stays = [true, false, true];
        let plain = Rows {
            stays: &stays,
            defs: &[],
            reps: &[],
            most_def: 0,
        };
        assert_eq!(plain.that_stay(&[1, 2, 3]).0, [1, 3]);
        let nullable = Rows {
            stays: &stays,
            defs: &[1, 1, 0],
            reps: &[],
            most_def: 1,
        };
        assert_eq!(
            nullable.that_stay(&[1, 2]),
            (vec![1], vec![1, 0], Vec::new())
        );
        // [1, null], [2], []
        let lists = Rows {
            stays: &stays,
            defs: &[3, 2, 3, 1],
            reps: &[0, 1, 0, 0],
            most_def: 3,
        };
        assert_eq!(
            lists.that_stay(&[1, 2]),
            (vec![1], vec![3, 2, 1], vec![0, 1, 0])
        );
    }
}
