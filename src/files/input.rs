//! Rows of tables into windows of tokenised texts.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::columnar::check_codecs_of;
use super::columns::Columns;
use super::inputs::Segment;
use super::kept::Kept;
use super::output::Shape;
use super::wanted::{check_columns, check_names, is_from};
use super::{FileJob, FilesError};
use crate::tables::csv::Csv;
use crate::tables::json::{Elements, Lines};
use crate::tables::parquet::Parquet;
use crate::tables::{Format, Packing, Row, Rows, TableError, bytes};
use topicmill_score::text::{EncodedText, Encoder};

/// A window ends early when its rows together are this long.
const MAX_WINDOW_BYTES: usize = 32 << 20;

/// Rows that are scored together.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Every row, in order.
    pub(super) entries: Vec<Entry>,
    /// The texts of the entries that have one, in order.
    pub(super) texts: Vec<EncodedText>,
    /// The same as they came, where they are asked for.
    pub(super) plain: Vec<String>,
    /// The labels that the rows of these texts bring, one list a text.
    pub(super) labels: Vec<Option<Vec<String>>>,
}

/// A row of an input.
#[derive(Debug)]
pub(super) struct Entry {
    /// Index of the input.
    pub(super) input: usize,
    /// Number of its line, from 1, blank ones counted; of the row where the format has no lines.
    pub(super) line: u64,
    /// What OUTPUT has of it: members of a JSON object.
    pub(super) kept: String,
    /// Members that the condition reads and OUTPUT has not.
    pub(super) seen: String,
    /// What is wrong with it. Without this it has a text.
    pub(super) problem: Option<String>,
}

/// Checks that every input can be opened and has the columns that were asked for, before any work is done. Pipes are
/// left alone.
pub(super) fn check(job: &FileJob) -> Result<(), FilesError> {
    for path in &job.inputs {
        if bytes::is_stdin(path) {
            continue;
        }
        match path.metadata() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(FilesError::Missing(path.clone()));
            }
            Ok(meta) if meta.is_dir() => return Err(FilesError::Folder(path.clone())),
            Ok(meta) if !meta.is_file() => {}
            _ => drop(open(job, path, false)?),
        }
    }
    Ok(())
}

/// What stands between the values of the first input, or is to.
pub(super) fn delimiter(job: &FileJob) -> Option<u8> {
    let path = &job.inputs[0];
    let about = path.metadata().ok().filter(std::fs::Metadata::is_file);
    let input = about.and_then(|_| open(job, path, false).ok());
    match input {
        Some(input) if input.format == Format::Tsv => None,
        Some(input) => input.delimiter.or(job.reading.delimiter),
        None => job.reading.delimiter,
    }
}

/// An input that was opened.
struct Input {
    rows: Box<dyn Rows>,
    /// Known where the table has a line of names.
    columns: Option<Columns>,
    format: Format,
    delimiter: Option<u8>,
}

fn open(job: &FileJob, path: &Path, copied: bool) -> Result<Input, FilesError> {
    let failed = |source: TableError| FilesError::of_table(path, source);
    let (of_name, packing) = Format::of_name(path);
    let reading = &job.reading;
    let asked = reading.format.or(of_name);
    if asked == Some(Format::Parquet) {
        if packing != Packing::Plain || bytes::is_stdin(path) {
            return Err(failed(TableError::Seek));
        }
        return open_parquet(job, path, copied);
    }
    let mut text = bytes::open(path)
        .and_then(bytes::text)
        .map_err(|error| failed(error.into()))?;
    let start = bytes::beginning(&mut text).map_err(|error| failed(error.into()))?;
    if start.starts_with(b"PAR1") {
        return Err(failed(if bytes::is_stdin(path) {
            TableError::Seek
        } else {
            TableError::IsParquet
        }));
    }
    let is_object = start.first().is_none_or(|byte| *byte == b'{');
    let format = match asked {
        // Many files of one object a line are called `.json`.
        Some(Format::Json) | None if is_object => Format::Ndjson,
        Some(format) => format,
        None if start.starts_with(b"[") => Format::Json,
        None => Format::Csv,
    };
    if start.is_empty() && asked.is_none_or(|asked| matches!(asked, Format::Csv | Format::Tsv)) {
        return Err(FilesError::Empty(vec![path.to_owned()]));
    }
    let delimiter = match format {
        Format::Tsv => reading.delimiter.or(Some(b'\t')),
        _ => reading.delimiter,
    };
    Ok(match format {
        Format::Csv | Format::Tsv => {
            let rows = Csv::new(text, delimiter).map_err(failed)?;
            let names = rows.names().unwrap_or_default();
            check_names(job, names)?;
            Input {
                columns: Some(Columns::of_table(names, reading, path)?),
                delimiter: Some(rows.delimiter()),
                rows: Box::new(rows),
                format,
            }
        }
        _ => Input {
            rows: match format {
                Format::Json => Box::new(Elements::new(text)),
                _ => Box::new(Lines::new(text)),
            },
            columns: None,
            delimiter: None,
            format,
        },
    })
}

fn open_parquet(job: &FileJob, path: &Path, copied: bool) -> Result<Input, FilesError> {
    let file = File::open(path).map_err(|error| FilesError::of_table(path, error.into()))?;
    let input = parquet(job, path, copied, |wanted| Parquet::new(file, wanted))?;
    // The library would take it for damage, at the first row.
    check_codecs_of(path)?;
    Ok(input)
}

/// Rows of one file of many.
fn open_segment(job: &FileJob, segment: &Segment) -> Result<Input, FilesError> {
    let chunks = segment.input.open()?;
    let rows = segment.rows.clone();
    parquet(job, segment.input.shown.as_ref(), true, |wanted| {
        Parquet::part(chunks, rows, wanted)
    })
}

/// An error that learns later in which file it was.
enum Failed {
    Table(TableError),
    Files(FilesError),
}

impl From<TableError> for Failed {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

/// Says which columns of a table are read.
type Wanted<'a> = &'a mut dyn FnMut(&[Arc<str>]) -> Result<Vec<usize>, Failed>;

/// With `copied`, only the columns that are needed to score are read.
fn parquet(
    job: &FileJob,
    path: &Path,
    copied: bool,
    open: impl FnOnce(Wanted<'_>) -> Result<Parquet, Failed>,
) -> Result<Input, FilesError> {
    let mut columns = None;
    let rows = open(&mut |names: &[Arc<str>]| {
        check_names(job, names).map_err(Failed::Files)?;
        let found = Columns::of_table(names, &job.reading, path).map_err(Failed::Files)?;
        let needed = found.needed();
        // In the output it may have another name.
        let is_asked = |name: &str| {
            let filter = job.writing.filter.as_ref();
            filter.is_some_and(|filter| filter.columns().iter().any(|of| is_from(of, name)))
        };
        let is_read = |name: &str| !copied || needed.contains(&name) || is_asked(name);
        let wanted = (0..names.len()).filter(|at| is_read(&names[*at]));
        let wanted = wanted.collect();
        columns = Some(found);
        Ok(wanted)
    });
    let rows = rows.map_err(|error| match error {
        Failed::Table(error) => FilesError::of_table(path, error),
        Failed::Files(error) => error,
    })?;
    Ok(Input {
        rows: Box::new(rows),
        columns,
        format: Format::Parquet,
        delimiter: None,
    })
}

/// How the rows are read.
pub(super) struct Order<'a> {
    pub(super) job: &'a FileJob,
    pub(super) encoder: &'a Encoder,
    pub(super) shape: &'a Shape,
    /// The parts of the inputs that are read, where these are not all of them.
    pub(super) segments: Option<&'a [Segment]>,
    /// Rows that an earlier run has dealt with.
    pub(super) skip: u64,
    /// Rows of a window.
    pub(super) size: usize,
    /// Whether windows hold the texts as they came, too.
    pub(super) plain: bool,
}

/// Reads the inputs, and sends windows until the end, an error, or until nobody receives.
pub(super) fn read(order: &Order<'_>, windows: &SyncSender<Result<Window, FilesError>>) {
    let mut reader = Reader {
        order,
        skip: order.skip,
        number: 0,
        kept: Kept::new(&order.shape.reserved()),
        entries: Vec::new(),
        texts: Vec::new(),
        labels: Vec::new(),
        own_labels: 0,
        bytes: 0,
        // An earlier run has looked, and the rows that come now may lack a field.
        checked: order.skip > 0,
    };
    let mut send = |window| windows.send(window).map_err(|_| Hangup);
    if let Err(Interrupted::Failed(error)) = reader.run(&mut send) {
        // If nobody receives this either, an earlier error is already being reported.
        let _ = windows.send(Err(error));
    }
}

/// Where windows go.
type Send<'a> = &'a mut dyn FnMut(Result<Window, FilesError>) -> Result<(), Hangup>;

/// Nobody receives any more.
struct Hangup;

enum Interrupted {
    Hangup,
    Failed(FilesError),
}

impl From<Hangup> for Interrupted {
    fn from(_: Hangup) -> Self {
        Self::Hangup
    }
}

impl From<FilesError> for Interrupted {
    fn from(error: FilesError) -> Self {
        Self::Failed(error)
    }
}

struct Reader<'a> {
    order: &'a Order<'a>,
    skip: u64,
    /// Rows so far.
    number: u64,
    kept: Kept,
    entries: Vec<Entry>,
    texts: Vec<String>,
    labels: Vec<Option<Vec<String>>>,
    /// How many labels the rows of the window bring.
    own_labels: usize,
    bytes: usize,
    /// Whether the columns of the condition were looked for.
    checked: bool,
}

impl Reader<'_> {
    fn run(&mut self, send: Send<'_>) -> Result<(), Interrupted> {
        let order = self.order;
        if let Some(segments) = order.segments {
            for (at, segment) in segments.iter().enumerate() {
                self.segment(segment, at == 0, send)?;
            }
        } else {
            for (at, path) in order.job.inputs.iter().enumerate() {
                let mut input = open(order.job, path, order.shape.is_copied())?;
                if let Some(columns) = &input.columns {
                    columns.tell(path, input.format.name());
                }
                self.rows_of(at, path, &mut input, send)?;
            }
        }
        if !self.entries.is_empty() {
            send(Ok(self.window()?))?;
        }
        Ok(())
    }

    /// Reads a part of an input, of which an earlier run may have dealt with some rows or with all.
    fn segment(
        &mut self,
        segment: &Segment,
        is_first: bool,
        send: Send<'_>,
    ) -> Result<(), Interrupted> {
        let order = self.order;
        let mut left = segment.clone();
        let done = self.skip.min(left.rows.end - left.rows.start);
        self.skip -= done;
        left.rows.start += done;
        if left.rows.is_empty() && done > 0 {
            return Ok(());
        }
        self.number = segment.before + left.rows.start;
        let mut input = open_segment(order.job, &left)?;
        if let Some(columns) = input.columns.as_ref().filter(|_| is_first) {
            columns.tell(segment.input.shown.as_ref(), input.format.name());
        }
        self.rows_of(segment.at, segment.input.shown.as_ref(), &mut input, send)
    }

    fn rows_of(
        &mut self,
        at: usize,
        path: &Path,
        input: &mut Input,
        send: Send<'_>,
    ) -> Result<(), Interrupted> {
        let order = self.order;
        let failed = |error| FilesError::of_table(path, error);
        let mut columns = input.columns.take();
        loop {
            // The first object says where the columns are.
            if self.skip > 0 && columns.is_some() {
                if !input.rows.skip_row().map_err(failed)? {
                    return Ok(());
                }
                (self.skip, self.number) = (self.skip - 1, self.number + 1);
                continue;
            }
            let Some(row) = input.rows.next_row().map_err(failed)? else {
                return Ok(());
            };
            self.number += 1;
            let columns = columns.get_or_insert_with(|| {
                let columns = Columns::of_object(&row, &order.job.reading);
                columns.tell(path, input.format.name());
                columns
            });
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.take(at, row, columns);
            if self.entries.len() >= order.size
                || self.own_labels >= order.job.window_rows
                || self.bytes >= MAX_WINDOW_BYTES
            {
                send(Ok(self.window()?))?;
            }
        }
    }

    fn take(&mut self, input: usize, mut row: Row, columns: &Columns) {
        let number = columns.numbers().then_some(self.number);
        let id = columns.id(&row);
        if let Ok(Some(id)) = &id {
            self.kept.see(id, row.line);
        }
        let shape = self.order.shape;
        let mut kept = match (number, &id) {
            _ if shape.keeps_columns() => self.kept.members(&row, number),
            (Some(number), _) => format!("\"id\":{number}"),
            (None, Ok(Some(id))) if !shape.is_copied() => format!("\"id\":{id}"),
            (None, _) => String::new(),
        };
        if kept.is_empty() && !shape.is_copied() {
            kept.push_str("\"id\":null");
        }
        let seen = match &shape.filter {
            Some(filter) if !shape.keeps_columns() => {
                let reads = |name: &str| filter.reads(name);
                self.kept.members_that(&row, None, reads)
            }
            _ => String::new(),
        };
        let text = match row.problem.take() {
            Some(problem) => Err(problem),
            None => id.and_then(|_| Ok((columns.text(&row)?, columns.labels(&row)?))),
        };
        let problem = match text {
            Ok((text, labels)) => {
                self.bytes += text.len();
                self.own_labels += labels.as_ref().map_or(0, Vec::len);
                self.texts.push(text);
                self.labels.push(labels);
                None
            }
            Err(problem) => Some(problem),
        };
        self.bytes += kept.len();
        self.entries.push(Entry {
            input,
            line: row.line,
            kept,
            seen,
            problem,
        });
    }

    /// Whether a column that the condition reads came in the first rows, or is one of ours. An object may lack a field
    /// that the next one has.
    fn check_filter(&mut self) -> Result<(), FilesError> {
        let Some(filter) = self.order.shape.filter.as_ref().filter(|_| !self.checked) else {
            return Ok(());
        };
        self.checked = true;
        let names = self.kept.names().map(str::to_owned);
        let ours = self.order.shape.reserved().into_iter();
        // A row without an id has its number.
        let all = names.chain(ours).chain(["id".to_owned()]).collect();
        check_columns(filter, &all)
    }

    fn window(&mut self) -> Result<Window, FilesError> {
        self.check_filter()?;
        (self.bytes, self.own_labels) = (0, 0);
        let mut plain = std::mem::take(&mut self.texts);
        let texts = self
            .order
            .encoder
            .encode(&plain)
            .map_err(topicmill_score::LabelerError::from)?;
        if !self.order.plain {
            plain = Vec::new();
        }
        Ok(Window {
            entries: std::mem::take(&mut self.entries),
            texts,
            plain,
            labels: std::mem::take(&mut self.labels),
        })
    }
}
