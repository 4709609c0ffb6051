//! A question before something goes that cannot be brought back.

use std::io::{self, BufRead, IsTerminal, Write};

use super::CliError;

/// Asks on the terminal whether to go on; where there is none, `--yes` has to say it.
#[expect(clippy::print_stderr, reason = "a question is no log line")]
pub fn ask(yes: bool, what: &str) -> Result<bool, CliError> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(CliError::Usage(format!(
            "{what}: nobody can be asked here; add --yes if that is meant"
        )));
    }
    eprint!("{what}. Go on? [y/N] ");
    let mut answer = String::new();
    let heard = io::stderr()
        .flush()
        .and_then(|()| io::stdin().lock().read_line(&mut answer));
    heard
        .map_err(|error| CliError::Usage(format!("{what}: the answer cannot be read: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
