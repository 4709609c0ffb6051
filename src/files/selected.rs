//! Some rows of a Parquet row group, copied with every type as it is.
//!
//! Pages hold many rows, so a column that loses rows is read and written again: value by value, with the levels that say
//! which value belongs to which row, so that lists and structures come out as they went in.

use std::fs::File;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;

use crate::tables::columnar::RowGroup;
use crate::tables::parquet::caught;

/// Rows that are held at a time.
const ROWS: usize = 4096;

/// Copies the columns of a row group, of each row that `stays`.
pub(super) fn copy(
    reader: &SerializedFileReader<File>,
    group: usize,
    stays: &[bool],
    out: &mut RowGroup<'_>,
) -> Result<(), ParquetError> {
    caught(|| {
        let group = reader.get_row_group(group)?;
        for at in 0..group.num_columns() {
            let about = group.metadata().column(at).column_descr();
            match group.get_column_reader(at)? {
                ColumnReader::BoolColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::Int32ColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::Int64ColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::Int96ColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::FloatColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::DoubleColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::ByteArrayColumnReader(from) => copy_column(from, about, stays, out),
                ColumnReader::FixedLenByteArrayColumnReader(from) => {
                    copy_column(from, about, stays, out)
                }
            }?;
        }
        Ok(())
    })
    .unwrap_or_else(Err)
}

fn copy_column<T: DataType>(
    mut from: ColumnReaderImpl<T>,
    about: &ColumnDescriptor,
    stays: &[bool],
    out: &mut RowGroup<'_>,
) -> Result<(), ParquetError> {
    let lacking = || ParquetError::General("a column is missing".to_owned());
    let mut to = out.next_column()?.ok_or_else(lacking)?;
    let (most_def, most_rep) = (about.max_def_level(), about.max_rep_level());
    let (mut values, mut defs, mut reps) = (Vec::new(), Vec::new(), Vec::new());
    for stays in stays.chunks(ROWS) {
        let mut read = 0;
        values.clear();
        defs.clear();
        reps.clear();
        while read < stays.len() {
            let (rows, _, _) = from.read_records(
                stays.len() - read,
                (most_def > 0).then_some(&mut defs),
                (most_rep > 0).then_some(&mut reps),
                &mut values,
            )?;
            if rows == 0 {
                return Err(ParquetError::General(
                    "a column has fewer rows than its row group".to_owned(),
                ));
            }
            read += rows;
        }
        let rows = Rows {
            stays,
            defs: &defs,
            reps: &reps,
            most_def,
        };
        let (values, defs, reps) = rows.that_stay(&values);
        to.typed::<T>().write_batch(
            &values,
            (most_def > 0).then_some(&defs[..]),
            (most_rep > 0).then_some(&reps[..]),
        )?;
    }
    to.close()
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
