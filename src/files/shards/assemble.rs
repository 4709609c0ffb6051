//! The output of a shard, made of what was scored and of the inputs.
//!
//! Row groups of a set size are written one behind the other. Into each go the rows that stay: their own columns, value
//! by value out of the row groups of the inputs, and ours out of the journal. However large a row group of an input is,
//! no more than some pages of each of its columns are in memory.

use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::path::Path;
use std::sync::Arc;

use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use sha2::{Digest, Sha256};

use super::ShardJob;
use super::manifest::{RowCounts, Work, Written, draft_name};
use super::plan::{Plan, opened};
use crate::files::columnar::{self, Column};
use crate::files::columns::Columns;
use crate::files::inputs::{Chunks, Input, Segment, read_error};
use crate::files::journal::{MARK, is_left_out};
use crate::files::output::Shape;
use crate::files::shelf::Hold;
use crate::files::{FileReport, FilesError, selected, stream, write_error};
use crate::tables::columnar::{RowGroup, begin};
use crate::tables::parquet::caught;
use crate::tables::part::{batch_rows, pass};
use crate::tables::{TableError, pages};
use topicmill_score::hex;

/// Rows of the inputs that a row group of the output is made of at most: a condition may leave out nearly all of them,
/// and a byte stands for each.
const MOST_INPUT_ROWS: usize = 1 << 22;

/// Bytes of our own columns after which a row group ends early, because they are held until then.
const GROUP_BYTES: usize = 64 << 20;

/// Writes the output of a shard into a draft.
pub(super) fn assemble(
    job: &ShardJob,
    plan: &Plan,
    work: &Work,
    segments: &[Segment],
    shape: &Shape,
    report: &FileReport,
    hold: &mut dyn Hold,
) -> Result<Written, FilesError> {
    let draft = hold.draft(&draft_name(job.shard, work))?;
    let journal = hold.journal();
    let failed = columnar::failed(&draft);
    let names: Vec<Arc<str>> = columnar::names_of(&plan.about);
    let columns = Columns::of_table(&names, &job.job.reading, draft.as_path())?;
    let kept: Vec<usize> = (0..names.len())
        .filter(|at| !job.job.writing.drop_columns || columns.is_id(&names[*at]))
        .collect();
    let mut added: Vec<Column> = Vec::new();
    added.extend(columns.numbers().then(|| Column::added("id".to_owned())));
    added.extend(shape.added().into_iter().map(Column::added));
    let (schema, about) =
        columnar::schema_beside(&plan.about, &kept, shape, &added).map_err(&failed)?;
    let file = File::create(&draft).map_err(write_error(&draft))?;
    let mut writer = begin(BufWriter::new(file), schema, about, &[]).map_err(&failed)?;
    let mut inputs = Inputs::new(segments, columnar::leaves_within(&plan.about, &kept));
    let mut rows =
        stream::lines_of(journal)?.filter(|line| !line.as_ref().is_ok_and(|line| line == MARK));
    let mut written = 0;
    loop {
        let mut stays = Vec::new();
        let mut of_group = std::iter::from_fn(|| {
            while stays.len() < MOST_INPUT_ROWS {
                let line = rows.next()?;
                let stay = !line.as_ref().is_ok_and(|line| is_left_out(line));
                stays.push(stay);
                if stay {
                    return Some(line);
                }
            }
            None
        });
        let filled = columnar::fill(&mut added, &mut of_group, job.row_group_rows, GROUP_BYTES);
        let filled = filled.map_err(write_error(journal))?;
        if stays.is_empty() {
            break;
        }
        if filled == 0 {
            inputs.pass(stays.len() as u64);
            continue;
        }
        let mut group = writer.next_row_group().map_err(&failed)?;
        inputs.copy(&stays, &mut group, &draft)?;
        for column in &added {
            column.write(&mut group).map_err(&failed)?;
        }
        group.close().map_err(&failed)?;
        written += filled as u64;
    }
    inputs.unchanged()?;
    let file = writer.into_inner().map_err(&failed)?.into_inner();
    let file = file.map_err(|error| write_error(&draft)(error.into_error()))?;
    file.sync_all().map_err(write_error(&draft))?;
    let (bytes, sha256) = digest(&draft).map_err(write_error(&draft))?;
    Ok(Written {
        draft: draft.clone(),
        bytes,
        sha256,
        rows: RowCounts {
            read: report.lines,
            written,
            failed: report.failed,
            left_out: report.left_out,
        },
    })
}

/// Size and hash of a file.
fn digest(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok((bytes, hex(&hasher.finalize())));
        }
        hasher.update(&buffer[..n]);
        bytes += n as u64;
    }
}

/// An input whose columns are being copied.
struct Open {
    segment: usize,
    chunks: Chunks,
    reader: SerializedFileReader<Chunks>,
}

/// Where a column is read.
#[derive(Default)]
struct Cursor {
    segment: usize,
    /// Rows of the segment that were read or passed.
    done: u64,
    /// A row group that is open, with the rows of it that are left.
    group: Option<(ColumnReader, u64)>,
    /// Values that are decoded at a time.
    batch: usize,
}

/// The columns of the inputs, each read from where it was left.
struct Inputs<'a> {
    segments: &'a [Segment],
    leaves: Vec<usize>,
    cursors: Vec<Cursor>,
    open: Vec<Open>,
    /// Row groups whose pages were looked at: segment and group.
    checked: Option<(usize, usize)>,
}

impl<'a> Inputs<'a> {
    fn new(segments: &'a [Segment], leaves: Vec<usize>) -> Self {
        Self {
            segments,
            cursors: leaves.iter().map(|_| Cursor::default()).collect(),
            leaves,
            open: Vec::new(),
            checked: None,
        }
    }

    /// Passes over rows of which none stays.
    fn pass(&mut self, rows: u64) {
        for cursor in &mut self.cursors {
            cursor.pass(self.segments, rows);
        }
        self.forget();
    }

    /// Copies the rows that stay into a row group, column by column.
    fn copy(
        &mut self,
        stays: &[bool],
        to: &mut RowGroup<'_>,
        draft: &Path,
    ) -> Result<(), FilesError> {
        for at in 0..self.leaves.len() {
            let mut cursor = std::mem::take(&mut self.cursors[at]);
            let copied = self.copy_column(at, &mut cursor, stays, to, draft);
            self.cursors[at] = cursor;
            copied?;
        }
        self.forget();
        Ok(())
    }

    fn copy_column(
        &mut self,
        at: usize,
        cursor: &mut Cursor,
        stays: &[bool],
        to: &mut RowGroup<'_>,
        draft: &Path,
    ) -> Result<(), FilesError> {
        let written = columnar::failed(draft);
        let column = to.next_column().map_err(&written)?;
        let mut column = column.expect("the schema has each column that is copied");
        let mut rest = stays;
        while !rest.is_empty() {
            let left = self.group(at, cursor)?;
            let n = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
            let (now, later) = rest.split_at(n);
            let input = &self.segments[cursor.segment].input;
            let about = self.descriptor(at, cursor);
            let (from, left) = cursor.group.as_mut().expect("it was opened a line ago");
            let copied = caught(|| selected::append(from, &about, now, cursor.batch, &mut column));
            copied
                .unwrap_or_else(|panic| Err(selected::Failed::Read(panic)))
                .map_err(|error| match error {
                    selected::Failed::Read(error) => of_input(input)(error),
                    selected::Failed::Write(error) => written(error),
                })?;
            *left -= n as u64;
            cursor.done += n as u64;
            rest = later;
        }
        column.close().map_err(&written)
    }

    fn descriptor(&self, at: usize, cursor: &Cursor) -> parquet::schema::types::ColumnDescPtr {
        let open = self.open.iter().find(|open| open.segment == cursor.segment);
        let open = open.expect("its group is open");
        open.reader
            .metadata()
            .file_metadata()
            .schema_descr()
            .column(self.leaves[at])
    }

    /// Opens the row group that a column goes on in, if it is not open; how many rows of it are left.
    fn group(&mut self, at: usize, cursor: &mut Cursor) -> Result<u64, FilesError> {
        if let Some((_, left)) = cursor.group.as_ref().filter(|(_, left)| *left > 0) {
            return Ok(*left);
        }
        cursor.group = None;
        while cursor.done >= length(&self.segments[cursor.segment]) {
            cursor.segment += 1;
            cursor.done = 0;
        }
        let segment = &self.segments[cursor.segment];
        let failed = of_input(&segment.input);
        let place = self.opened(cursor.segment)?;
        let open = &self.open[place];
        let mut skip = segment.rows.start + cursor.done;
        let groups = open.reader.metadata().row_groups();
        let lacks = || {
            failed(ParquetError::General(
                "it is damaged (it lacks rows)".to_owned(),
            ))
        };
        for (number, group) in groups.iter().enumerate() {
            let rows = u64::try_from(group.num_rows()).map_err(|_| lacks())?;
            if skip >= rows {
                skip -= rows;
                continue;
            }
            if self.checked != Some((cursor.segment, number)) {
                let checked = pages::check_group(&open.chunks, group, &self.leaves);
                checked.map_err(|fault| of_table(&segment.input, fault.into()))?;
                self.checked = Some((cursor.segment, number));
            }
            let leaf = self.leaves[at];
            let column = group.column(leaf);
            let reader = caught(|| {
                let mut reader = open.reader.get_row_group(number)?.get_column_reader(leaf)?;
                pass(&mut reader, usize::try_from(skip).unwrap_or(usize::MAX))?;
                Ok(reader)
            });
            let reader = reader.unwrap_or_else(Err).map_err(&failed)?;
            cursor.batch = batch_rows(column.uncompressed_size(), group.num_rows());
            let left = (rows - skip).min(length(segment) - cursor.done);
            cursor.group = Some((reader, left));
            return Ok(left);
        }
        Err(lacks())
    }

    /// The place of an open input.
    fn opened(&mut self, segment: usize) -> Result<usize, FilesError> {
        if let Some(place) = self.open.iter().position(|open| open.segment == segment) {
            return Ok(place);
        }
        let input = &self.segments[segment].input;
        let chunks = input.open()?;
        self.open.push(Open {
            segment,
            reader: opened(input, &chunks)?,
            chunks,
        });
        Ok(self.open.len() - 1)
    }

    /// Closes inputs that all columns are through with.
    fn forget(&mut self) {
        let first = self.cursors.iter().map(|cursor| cursor.segment).min();
        self.open.retain(|open| Some(open.segment) >= first);
    }

    /// Whether the inputs that are open are what they were.
    fn unchanged(&self) -> Result<(), FilesError> {
        self.open.iter().try_for_each(|open| {
            let shown = &self.segments[open.segment].input.shown;
            open.chunks
                .unchanged()
                .map_err(|error| read_error(shown, error))
        })
    }
}

impl Cursor {
    /// Goes on behind rows without reading them.
    fn pass(&mut self, segments: &[Segment], mut rows: u64) {
        self.group = None;
        while rows > 0 {
            let left = length(&segments[self.segment]) - self.done;
            let n = rows.min(left);
            rows -= n;
            self.done += n;
            if n == left && rows > 0 {
                self.segment += 1;
                self.done = 0;
            }
        }
    }
}

fn length(segment: &Segment) -> u64 {
    segment.rows.end - segment.rows.start
}

fn of_table(input: &Input, error: TableError) -> FilesError {
    FilesError::of_table(input.shown.as_ref(), error)
}

fn of_input(input: &Input) -> impl Fn(ParquetError) -> FilesError + '_ {
    |error| of_table(input, TableError::of(error))
}
