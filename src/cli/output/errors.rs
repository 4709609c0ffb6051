//! Prints errors to stderr.

use std::error::Error;
use std::io::{self, Write};

use crate::cli::CliError;
use crate::telemetry::{self, LogFormat, sanitize};

/// Prints a request to report the bug, after the panic message.
pub fn print_bug() {
    print_err(
        "error: this is a bug in topicmill: please report it with the lines above; data that was already stored is safe\n",
    );
}

/// Prints an error and its causes to stderr, except causes that the message already contains. With JSON logs, writes
/// them as a log line.
pub fn print_error(error: &CliError, format: LogFormat) {
    if matches!(error, CliError::ClosedPipe) {
        return;
    }
    let message = error.to_string();
    let mut causes = Vec::new();
    let mut printed = message.clone();
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !printed.contains(&text) {
            printed.push_str(&text);
            causes.push(text);
        }
        cause = next.source();
    }
    if format == LogFormat::Json {
        return telemetry::fatal(&message, &causes);
    }
    let mut text = format!("error: {}\n", sanitize::lines(&message));
    for cause in causes {
        text.extend([format!("  caused by: {}\n", sanitize::lines(&cause))]);
    }
    print_err(&text);
}

/// Prints to stderr. An error of stderr cannot be reported, and `eprint!` would panic.
pub fn print_err(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
