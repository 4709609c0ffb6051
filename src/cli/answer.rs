//! Writes the answer to a query to stdout as its rows come: in every format, a part at a time, so that no more
//! than a part is held.

use std::io::{self, IsTerminal, Write};

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use super::CliError;
use super::output::{self, Format, for_people};
use crate::store::{Part, Table};
use crate::telemetry::harmless;

/// Rows of a table that are laid out together: the columns of the next ones may be wider.
const ROWS_A_TABLE: usize = 1_000;
/// And bytes of texts, about.
const BYTES_A_TABLE: usize = 8 * 1024 * 1024;

/// Writes the parts as they come; how many rows. Whoever reads may stop reading, which is no error.
pub fn write(parts: Receiver<Part>, format: Format, safe_csv: bool) -> Result<u64, CliError> {
    let mut answer = Coming {
        parts,
        columns: Vec::new(),
        rows: 0,
    };
    let Some(Part::Columns(columns)) = answer.parts.blocking_recv() else {
        return Ok(0); // Refused.
    };
    answer.columns = columns;
    let mut out = Harmless {
        out: io::BufWriter::with_capacity(64 * 1024, io::stdout().lock()),
        format,
        is_terminal: io::stdout().is_terminal(),
    };
    let written = match format {
        Format::Table => answer.table(&mut out),
        Format::Csv => answer.csv(&mut out, safe_csv),
        Format::Json => answer.json(&mut out),
        Format::Ndjson => answer.ndjson(&mut out),
    };
    match written.and_then(|()| out.out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(answer.rows),
        written => written.map(|()| answer.rows).map_err(output::not_written),
    }
}

/// Where a format's text goes; what a terminal would obey is taken out as far as the format allows.
struct Harmless<W> {
    out: W,
    format: Format,
    is_terminal: bool,
}

impl<W: Write> Harmless<W> {
    fn text(&mut self, text: &str) -> io::Result<()> {
        let text = match self.format {
            Format::Table => harmless::lines(text),
            Format::Json | Format::Ndjson => harmless::json(text),
            Format::Csv if self.is_terminal => harmless::lines(text),
            Format::Csv => text.into(),
        };
        self.out.write_all(text.as_bytes())
    }
}

struct Coming {
    parts: Receiver<Part>,
    columns: Vec<String>,
    rows: u64,
}

impl Coming {
    /// The next rows; none at the end.
    fn next(&mut self) -> Option<Vec<Vec<Value>>> {
        let Part::Rows(rows) = self.parts.blocking_recv()? else {
            return Some(Vec::new()); // The columns came already.
        };
        self.rows += rows.len() as u64;
        Some(rows)
    }

    fn table<W: Write>(&mut self, out: &mut Harmless<W>) -> io::Result<()> {
        let mut table = Table {
            columns: self.columns.clone(),
            rows: Vec::new(),
        };
        let mut bytes = 0;
        let mut is_first = true;
        loop {
            let rows = self.next();
            let is_last = rows.is_none();
            for row in rows.into_iter().flatten() {
                bytes += row
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::len)
                    .sum::<usize>();
                table.rows.push(row);
            }
            let full = table.rows.len() >= ROWS_A_TABLE || bytes >= BYTES_A_TABLE;
            if full || (is_last && (is_first || !table.rows.is_empty())) {
                out.text(if is_first { "" } else { "\n" })?;
                out.text(&for_people(&table))?;
                table.rows.clear();
                (bytes, is_first) = (0, false);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn csv<W: Write>(&mut self, out: &mut Harmless<W>, safe: bool) -> io::Result<()> {
        let header = self.columns.iter().cloned().map(Value::from);
        let mut rows = vec![header.collect()];
        loop {
            out.text(&output::csv(&rows, safe)?)?;
            match self.next() {
                Some(next) => rows = next,
                None => return Ok(()),
            }
        }
    }

    fn ndjson<W: Write>(&mut self, out: &mut Harmless<W>) -> io::Result<()> {
        let mut text = Vec::new();
        while let Some(rows) = self.next() {
            for row in &rows {
                text.clear();
                serde_json::to_writer(&mut text, &Object(&self.columns, row))?;
                text.push(b'\n');
                out.text(std::str::from_utf8(&text).expect("JSON is UTF-8"))?;
            }
        }
        Ok(())
    }

    fn json<W: Write>(&mut self, out: &mut Harmless<W>) -> io::Result<()> {
        // The serializer holds on to what it writes to; its text is taken out from behind.
        let text = std::cell::RefCell::new(Vec::new());
        let mut serializer = serde_json::Serializer::pretty(Taken(&text));
        let mut array = serializer.serialize_seq(None)?;
        while let Some(rows) = self.next() {
            for row in &rows {
                array.serialize_element(&Object(&self.columns, row))?;
            }
            let part = std::mem::take(&mut *text.borrow_mut());
            out.text(std::str::from_utf8(&part).expect("JSON is UTF-8"))?;
        }
        SerializeSeq::end(array)?;
        let rest = text.take();
        out.text(std::str::from_utf8(&rest).expect("JSON is UTF-8"))?;
        out.text("\n")
    }
}

/// A writer to a text that somebody else takes.
struct Taken<'t>(&'t std::cell::RefCell<Vec<u8>>);

impl Write for Taken<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A row as an object.
struct Object<'r>(&'r [String], &'r [Value]);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(columns, row) = self;
        let mut map = serializer.serialize_map(Some(row.len()))?;
        for (column, value) in columns.iter().zip(*row) {
            map.serialize_entry(column, value)?;
        }
        map.end()
    }
}
