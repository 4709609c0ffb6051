//! Opens input tables and reads their rows into windows of tokenised texts.

use std::io;
use std::path::Path;
use std::sync::mpsc::SyncSender;

use super::columns::InputColumns;
use super::kept_columns::KeptColumns;
use super::output::OutputLayout;
use super::paths::missing;
use super::{FileJob, FilesError};
use topicmill_score::LabelerError;
use topicmill_score::text::{EncodedText, Encoder};
use topicmill_tables::{OpenTable, Row, TableError, TableFormat, bytes};

/// Number of bytes after which a window is sent early.
const MAX_WINDOW_BYTES: usize = 32 << 20;

/// Rows that are scored together.
#[derive(Debug, Default)]
pub(super) struct TextWindow {
    /// Every row, in order.
    pub(super) entries: Vec<Entry>,
    /// The tokenised texts of the entries that have text, in order.
    pub(super) texts: Vec<EncodedText>,
    /// The original texts, if requested.
    pub(super) plain: Vec<String>,
}

/// A row from an input.
#[derive(Debug)]
pub(super) struct Entry {
    /// The input's index.
    pub(super) input: usize,
    /// Line number from 1, including blank lines; row number if the format has no lines.
    pub(super) line: u64,
    /// The members of the output object that come from the input.
    pub(super) kept: String,
    /// The error; `None` if the row has text.
    pub(super) problem: Option<String>,
}

/// Checks that every input can be opened and has the requested columns, before any work is done. Skips pipes.
pub(super) fn check(job: &FileJob) -> Result<(), FilesError> {
    for path in &job.inputs {
        if bytes::is_stdin(path) {
            continue;
        }
        match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing(path)),
            Ok(meta) if !meta.is_file() => {}
            _ => drop(open(job, path, Columns::All)?),
        }
    }
    Ok(())
}

/// Returns the first input's delimiter, if it is CSV.
pub(super) fn delimiter(job: &FileJob) -> Option<u8> {
    let path = &job.inputs[0];
    if !path.is_file() {
        return None;
    }
    let (table, _) = open(job, path, Columns::All).ok()?;
    match table.format {
        TableFormat::Csv => table.delimiter,
        _ => None,
    }
}

/// The columns of an input to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    All,
    /// Only those that are needed to score.
    Needed,
}

/// Opens an input, and detects its text and id columns if it has a header line.
fn open(
    job: &FileJob,
    path: &Path,
    columns_read: Columns,
) -> Result<(OpenTable, Option<InputColumns>), FilesError> {
    let failed = |source: TableError| FilesError::from_table(path, source);
    let reading = &job.reading;
    let Some(mut table) = topicmill_tables::open(path, reading.format).map_err(failed)? else {
        return Err(FilesError::Empty(vec![path.to_owned()]));
    };
    let Some(names) = table.rows.names() else {
        return Ok((table, None));
    };
    let columns = InputColumns::from_names(names, reading, path)?;
    let needed = columns.needed();
    let is_read = |name: &str| columns_read == Columns::All || needed.contains(&name);
    let selected: Vec<usize> = (0..names.len()).filter(|i| is_read(&names[*i])).collect();
    table.rows.select(&selected).map_err(failed)?;
    Ok((table, Some(columns)))
}

/// A request to read rows in windows of a certain size.
pub(super) struct ReadOrder<'a> {
    pub(super) job: &'a FileJob,
    pub(super) encoder: &'a Encoder,
    pub(super) layout: &'a OutputLayout,
    /// Rows per window.
    pub(super) size: usize,
    /// True if windows also contain the original texts.
    pub(super) plain: bool,
}

/// Reads the inputs and sends windows, until the end, an error, or a dropped receiver.
pub(super) fn read(order: &ReadOrder<'_>, windows: &SyncSender<Result<TextWindow, FilesError>>) {
    let mut reader = WindowReader {
        order,
        windows,
        rows_read: 0,
        kept: KeptColumns::new(&order.layout.reserved()),
        entries: Vec::new(),
        texts: Vec::new(),
        bytes: 0,
    };
    if let Err(Interrupted::Failed(error)) = reader.run() {
        // If the receiver is gone, an earlier error is already being reported.
        let _ = windows.send(Err(error));
    }
}

/// The reason why reading ended early.
enum Interrupted {
    Failed(FilesError),
    ReceiverGone,
}

struct WindowReader<'a> {
    order: &'a ReadOrder<'a>,
    windows: &'a SyncSender<Result<TextWindow, FilesError>>,
    /// Number of rows read so far.
    rows_read: u64,
    kept: KeptColumns,
    /// The rows of the current window.
    entries: Vec<Entry>,
    texts: Vec<String>,
    bytes: usize,
}

impl WindowReader<'_> {
    fn run(&mut self) -> Result<(), Interrupted> {
        let order = self.order;
        let columns_read = if order.layout.is_copied {
            Columns::Needed
        } else {
            Columns::All
        };
        for (input, path) in order.job.inputs.iter().enumerate() {
            let opened = open(order.job, path, columns_read);
            let (mut table, mut columns) = opened.map_err(Interrupted::Failed)?;
            if let Some(columns) = &columns {
                columns.log(path, table.format.name());
            }
            let failed = |error| Interrupted::Failed(FilesError::from_table(path, error));
            while let Some(row) = table.rows.next_row().map_err(failed)? {
                // Without a header line, the columns are detected from the first object.
                let columns = columns.get_or_insert_with(|| {
                    let columns = InputColumns::from_row(&row, &order.job.reading);
                    columns.log(path, table.format.name());
                    columns
                });
                self.add_row(input, &row, columns);
                if self.entries.len() >= order.size || self.bytes >= MAX_WINDOW_BYTES {
                    self.send()?;
                }
            }
        }
        if self.entries.is_empty() {
            Ok(())
        } else {
            self.send()
        }
    }

    fn add_row(&mut self, input: usize, row: &Row, columns: &InputColumns) {
        self.rows_read += 1;
        let id = columns.id(row);
        let number = columns.has_row_numbers().then_some(self.rows_read);
        let known_id = id.as_ref().ok().and_then(Option::as_deref);
        let kept = self.kept_members(row, known_id, number);
        let text = match &row.problem {
            Some(problem) => Err(problem.clone()),
            None => id.and_then(|_| columns.text(row)),
        };
        let problem = match text {
            Ok(text) => {
                self.bytes += text.len();
                self.texts.push(text);
                None
            }
            Err(problem) => Some(problem),
        };
        self.bytes += kept.len();
        self.entries.push(Entry {
            input,
            line: row.line,
            kept,
            problem,
        });
    }

    /// Returns the members of the output object that come from the input: its columns, or else only its id. `number` is
    /// the row's number if that is its id.
    fn kept_members(&mut self, row: &Row, id: Option<&str>, number: Option<u64>) -> String {
        let layout = self.order.layout;
        let kept = if layout.keeps_columns() {
            self.kept.members(row, number)
        } else if let Some(number) = number {
            format!("\"id\":{number}")
        } else if let Some(id) = id
            && !layout.is_copied
        {
            format!("\"id\":{id}")
        } else {
            String::new()
        };
        if kept.is_empty() && !layout.is_copied {
            return "\"id\":null".to_owned();
        }
        kept
    }

    /// Sends the current window.
    fn send(&mut self) -> Result<(), Interrupted> {
        self.bytes = 0;
        let plain = std::mem::take(&mut self.texts);
        let encoded = self.order.encoder.encode(&plain);
        let window = TextWindow {
            entries: std::mem::take(&mut self.entries),
            texts: encoded
                .map_err(|error| Interrupted::Failed(LabelerError::from(error).into()))?,
            plain: if self.order.plain { plain } else { Vec::new() },
        };
        let sent = self.windows.send(Ok(window));
        sent.map_err(|_| Interrupted::ReceiverGone)
    }
}
