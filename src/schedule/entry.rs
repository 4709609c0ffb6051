//! One `[[schedule]]` of a pipeline file: plain values, each of which was checked when it was read.

use std::time::Duration;

use super::timetable::Timetable;
use topicmill_core::{CatchUp, Overlap};

/// Names go into unit files, labels of Kubernetes and file names, all of which take these.
const LONGEST_NAME: usize = 40;

/// The commands that a slot may run.
pub const STAGES: &[&str] = &[
    "collect", "import", "classify", "run", "purge", "report", "export", "db",
];

/// EventKind runs when.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// By which its slots are known.
    pub name: String,
    /// When it is due.
    pub timetable: Timetable,
    /// Command lines, each without the program's name, run one after another.
    pub stages: Vec<Vec<String>>,
    /// EventKind becomes of slots that were missed.
    pub catch_up: CatchUp,
    /// EventKind becomes of a slot while the one before it runs.
    pub overlap: Overlap,
    /// How long a slot may take.
    pub timeout: Option<Duration>,
}

/// Whether a name may be given to a schedule; else what is wrong with it.
///
/// # Errors
/// EventKind to write instead.
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
        "write small letters, digits and `-`, a letter first, at most {LONGEST_NAME} of them, as in `quarter-hourly`"
    ))
}

/// A command line as words: separated by spaces, and held together by quotes.
///
/// # Errors
/// A quote without its end, or nothing at all.
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
        return Err("it has a quote without its end".to_owned());
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
    fn a_line_is_split_as_a_shell_does() {
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
    fn names_fit_wherever_they_go() {
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
