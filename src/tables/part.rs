//! Some rows of a Parquet file that lie behind one another.
//!
//! Row groups before them are not read. In the row group that they begin in, whole pages before them are passed over as
//! they lie there, so that the last of a hundred parts of one large row group is not decoded a hundred times.

use std::ops::Range;

use parquet::bloom_filter::Sbbf;
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use parquet::record::Row;
use parquet::record::reader::{ReaderIter, RowIter, TreeBuilder};
use parquet::schema::types::{SchemaDescPtr, Type};

use super::{ParquetFault, pages};

/// The rows of a range, of some columns.
pub(super) struct Part<R: ChunkReader> {
    file: R,
    reader: SerializedFileReader<R>,
    schema: SchemaDescPtr,
    leaves: Vec<usize>,
    /// The next row group.
    group: usize,
    /// The rows of the one that is open, and how many of it are left.
    rows: Option<(ReaderIter, u64)>,
    /// Rows to pass over first.
    skip: u64,
    /// Rows to give.
    left: u64,
}

impl<R: ChunkReader + 'static> Part<R> {
    /// `schema`: the columns that are read; `leaves`: where these lie in the file.
    pub(super) fn new(
        file: R,
        reader: SerializedFileReader<R>,
        schema: SchemaDescPtr,
        leaves: Vec<usize>,
        range: Range<u64>,
    ) -> Self {
        Self {
            file,
            reader,
            schema,
            leaves,
            group: 0,
            rows: None,
            skip: range.start,
            left: range.end.saturating_sub(range.start),
        }
    }

    /// The next row; `None` at the end of the range.
    pub(super) fn step(&mut self) -> Result<Option<Row>, ParquetFault> {
        while self.left > 0 {
            if let Some((rows, left)) = self.rows.as_mut().filter(|(_, left)| *left > 0) {
                *left -= 1;
                self.left -= 1;
                let row = rows.next().ok_or_else(lacks)??;
                return Ok(Some(row));
            }
            self.open_group()?;
        }
        Ok(None)
    }

    /// Goes on to the next row group.
    fn open_group(&mut self) -> Result<(), ParquetFault> {
        let groups = self.reader.metadata().row_groups();
        loop {
            let about = groups.get(self.group).ok_or_else(lacks)?;
            let count = u64::try_from(about.num_rows()).unwrap_or(0);
            self.group += 1;
            if self.skip >= count {
                self.skip -= count;
                continue;
            }
            pages::check_group(&self.file, about, &self.leaves)?;
            let group = self.reader.get_row_group(self.group - 1)?;
            let from = Behind {
                group: &*group,
                skip: usize::try_from(self.skip).map_err(|_| lacks())?,
            };
            let batch = batch_rows(about.total_byte_size(), about.num_rows());
            let tree = TreeBuilder::new().with_batch_size(batch);
            let rows = tree.as_iter(self.schema.clone(), &from)?;
            self.rows = Some((rows, count - self.skip));
            self.skip = 0;
            return Ok(());
        }
    }
}

fn lacks() -> ParquetError {
    ParquetError::General("it has fewer rows than it says".to_owned())
}

/// A row group from some row on.
struct Behind<'a> {
    group: &'a dyn RowGroupReader,
    skip: usize,
}

impl RowGroupReader for Behind<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.group.metadata()
    }

    fn num_columns(&self) -> usize {
        self.group.num_columns()
    }

    fn get_column_page_reader(&self, i: usize) -> Result<Box<dyn PageReader>, ParquetError> {
        self.group.get_column_page_reader(i)
    }

    fn get_column_reader(&self, i: usize) -> Result<ColumnReader, ParquetError> {
        let mut reader = self.group.get_column_reader(i)?;
        pass(&mut reader, self.skip)?;
        Ok(reader)
    }

    fn get_column_bloom_filter(&self, i: usize) -> Option<&Sbbf> {
        self.group.get_column_bloom_filter(i)
    }

    fn get_row_iter(&self, projection: Option<Type>) -> Result<RowIter<'_>, ParquetError> {
        self.group.get_row_iter(projection)
    }
}

/// Passes over rows of a column.
///
/// # Errors
/// Where it is damaged, or has fewer rows.
pub fn pass(column: &mut ColumnReader, rows: usize) -> Result<(), ParquetError> {
    let passed = match column {
        ColumnReader::BoolColumnReader(column) => column.skip_records(rows),
        ColumnReader::Int32ColumnReader(column) => column.skip_records(rows),
        ColumnReader::Int64ColumnReader(column) => column.skip_records(rows),
        ColumnReader::Int96ColumnReader(column) => column.skip_records(rows),
        ColumnReader::FloatColumnReader(column) => column.skip_records(rows),
        ColumnReader::DoubleColumnReader(column) => column.skip_records(rows),
        ColumnReader::ByteArrayColumnReader(column) => column.skip_records(rows),
        ColumnReader::FixedLenByteArrayColumnReader(column) => column.skip_records(rows),
    }?;
    if passed < rows {
        let lacks = "a column has fewer rows than its row group".to_owned();
        return Err(ParquetError::General(lacks));
    }
    Ok(())
}

/// Rows that are decoded at a time, so that they fill a few MiB: `bytes` of `rows` rows are in the group.
pub fn batch_rows(bytes: i64, rows: i64) -> usize {
    const BATCH_BYTES: i64 = 4 << 20;
    const MOST: usize = 1024;
    let of_row = (bytes / rows.max(1)).max(1);
    usize::try_from(BATCH_BYTES / of_row).map_or(MOST, |rows| rows.clamp(1, MOST))
}
