//! One `[[schedule]]` entry of a pipeline file, already validated.

use std::time::Duration;

use super::timetable::Timetable;
use topicmill_core::{CatchUp, Overlap};

/// Maximum length of a name. Names are used in unit files, Kubernetes labels and file names.
const LONGEST_NAME: usize = 40;

/// The commands that a schedule may run.
pub const STAGES: &[&str] = &[
    "collect", "import", "classify", "run", "purge", "report", "export", "db",
];

/// A schedule: what to run, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The unique name.
    pub name: String,
    /// The due times.
    pub timetable: Timetable,
    /// The command lines, as words without the program's name, run one after another.
    pub stages: Vec<Vec<String>>,
    /// The policy for missed runs.
    pub catch_up: CatchUp,
    /// The policy for a run that is due while the previous one is running.
    pub overlap: Overlap,
    /// The maximum duration of a run.
    pub timeout: Option<Duration>,
}

/// Checks the name of a schedule.
///
/// # Errors
/// Returns the rule for valid names.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(fits)
        && name.len() <= LONGEST_NAME;
    if good {
        return Ok(());
    }
    Err(format!(
        "write at most {LONGEST_NAME} lowercase letters, digits and `-`, starting with a letter, as in `quarter-hourly`"
    ))
}

/// Splits a command line into words at spaces, except within quotes.
///
/// # Errors
/// Returns a message for an unclosed quote or an empty line.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let (mut word, mut quote): (Option<String>, Option<char>) = (None, None);
    for c in line.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("it has an unclosed quote".to_owned());
    }
    words.extend(word);
    if words.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_like_a_shell_does() {
        let split = |line| words(line).unwrap();
        assert_eq!(split(" collect  --limit 5 "), ["collect", "--limit", "5"]);
        assert_eq!(
            split("report 'my report.html'"),
            ["report", "my report.html"]
        );
        assert_eq!(split("a\"b c\"d ''"), ["ab cd", ""]);
        assert!(words("report 'a").is_err());
        assert!(words("  ").is_err());
    }

    #[test]
    fn names_are_valid_in_units_labels_and_files() {
        for name in ["quarter-hourly", "a", "purge2"] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in [
            "",
            "Nightly",
            "2nd",
            "a b",
            "ü",
            "a_b",
            "a-",
            &"a".repeat(41),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
