//! Formats fields of log lines, and writes whole lines to stderr.

use std::fmt;
use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing::field::Field;
use tracing_subscriber::fmt::format::Writer;

use super::progress::BARS;
use super::run_id::current_run;
use super::sanitize;

/// Formats a field of a text line as `tracing-subscriber` does, with control characters replaced.
pub(super) fn field(out: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = format!("{value:?}");
    let value = sanitize::line(&text);
    match field.name() {
        "message" => write!(out, "{value}"),
        // These fields are metadata of events from the `log` crate.
        name if name.starts_with("log.") => Ok(()),
        name if out.has_ansi_escapes() => {
            write!(out, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}")
        }
        name => write!(out, "{name}={value}"),
    }
}

/// Writes log lines to stderr, above the progress bars.
pub(super) struct AboveBars;

impl Write for AboveBars {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let bars = BARS.get_or_init(MultiProgress::new);
        bars.suspend(|| io::stderr().write_all(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes whole JSON log lines to stderr, adds the run's id, and escapes control characters.
pub(super) struct JsonLine;

impl Write for JsonLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut text = sanitize::json(&String::from_utf8_lossy(line)).into_owned();
        let run = current_run();
        // Inside a string, the quotes in this text would be escaped, so it can only be a key.
        if run != 0 && !text.contains("\"run\":") {
            // It is inserted as text, because the layer has formatted the line already.
            text.insert_str(1, &format!("\"run\":{run},"));
        }
        io::stderr().write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
