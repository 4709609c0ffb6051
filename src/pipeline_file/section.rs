//! A table of a pipeline file: reads typed values by key, and reports mistakes with their positions.

use std::fmt::Display;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::mistakes::{Findings, nearest, quoted};

/// A value with its byte offset.
#[derive(Debug)]
pub(super) struct Located<T> {
    pub at: usize,
    pub value: T,
}

/// A table of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    /// The byte offset.
    pub at: usize,
}

impl<'a> Section<'a> {
    /// Creates a section at an offset; the file itself starts at 0.
    pub fn new(table: &'a DeTable<'a>, at: usize) -> Self {
        Self { table, at }
    }

    /// Returns the keys.
    pub fn keys(self) -> impl Iterator<Item = &'a Spanned<DeString<'a>>> {
        self.table.keys()
    }

    /// Reports unknown keys, each with the key that was most likely meant. `elsewhere` contains the keys of a different
    /// section, and the place where they belong.
    pub fn unknown_keys(
        self,
        here: &[&'static str],
        elsewhere: Option<(&[&'static str], &str)>,
        found: &mut Findings,
    ) {
        let (there, place) = elsewhere.unwrap_or_default();
        for key in self.keys() {
            let (at, key) = (key.span().start, key.get_ref().as_ref());
            if here.contains(&key) {
                continue;
            }
            let hint = if let Some(meant) = nearest(key, here) {
                format!(": did you mean `{meant}`?")
            } else if there.contains(&key) {
                format!(" here: it belongs {place}")
            } else if let Some(meant) = nearest(key, there) {
                format!(": did you mean `{meant}`? It belongs {place}")
            } else {
                format!(": the keys are {}", here.join(", "))
            };
            found.wrong(at, format!("unknown key {}{hint}", quoted(key)));
        }
    }

    /// Returns the raw value of a key.
    pub fn get(self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let mut entries = self.table.iter();
        let (_, value) = entries.find(|(name, _)| name.get_ref().as_ref() == key)?;
        Some(value)
    }

    /// Reads a value with `read`, or reports what was expected.
    fn read<T>(
        self,
        key: &str,
        wanted: &str,
        found: &mut Findings,
        read: impl Fn(&'a DeValue<'a>) -> Option<T>,
    ) -> Option<Located<T>> {
        let value = self.get(key)?;
        let at = value.span().start;
        let Some(value) = read(value.get_ref()) else {
            let kind = kind(value.get_ref());
            found.wrong(at, format!("`{key}` is {kind}: write {wanted}"));
            return None;
        };
        Some(Located { at, value })
    }

    /// Reads a string.
    pub fn text(self, key: &str, found: &mut Findings) -> Option<Located<String>> {
        let text = self.read(key, "a string in quotes", found, DeValue::as_str)?;
        clean(key, text.at, text.value, found)
    }

    /// Reads a string and parses it.
    pub fn word<T>(self, key: &str, found: &mut Findings) -> Option<Located<T>>
    where
        T: FromStr,
        T::Err: Display,
    {
        let Located { at, value } = self.text(key, found)?;
        match value.parse() {
            Ok(value) => Some(Located { at, value }),
            Err(error) => {
                found.wrong(at, format!("`{key}`: {error}"));
                None
            }
        }
    }

    /// Reads a number.
    pub fn number(self, key: &str, found: &mut Findings) -> Option<Located<f64>> {
        self.read(key, "a number, as in 0.5", found, |value| match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            value => whole_of(value).map(f64::from),
        })
    }

    /// Reads an integer of 0 or more.
    pub fn whole(self, key: &str, found: &mut Findings) -> Option<Located<u32>> {
        self.read(key, "a whole number, as in 100", found, whole_of)
    }

    /// Reads an array.
    pub fn list(self, key: &str, found: &mut Findings) -> Option<Located<&'a DeArray<'a>>> {
        self.read(key, "a list in square brackets", found, DeValue::as_array)
    }

    /// Reads an array of strings, or a single string.
    pub fn texts(self, key: &str, found: &mut Findings) -> Vec<Located<String>> {
        if self.get(key).is_some_and(|value| value.get_ref().is_str()) {
            return self.text(key, found).into_iter().collect();
        }
        let wanted = "a list of strings, as in [\"one\", \"two\"]";
        let Some(list) = self.read(key, wanted, found, DeValue::as_array) else {
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(list.value.len());
        for item in list.value {
            let at = item.span().start;
            if let Some(text) = item.get_ref().as_str() {
                texts.extend(clean(key, at, text, found));
            } else {
                let kind = kind(item.get_ref());
                found.wrong(at, format!("`{key}` lists {kind}: write {wanted}"));
            }
        }
        texts
    }
}

/// Rejects a string that the databases cannot store.
fn clean(key: &str, at: usize, text: &str, found: &mut Findings) -> Option<Located<String>> {
    if text.contains('\0') {
        found.wrong(
            at,
            format!("`{key}` contains a NUL, which no database stores: remove it"),
        );
        return None;
    }
    let value = text.to_owned();
    Some(Located { at, value })
}

/// Returns an integer of 0 or more.
pub(super) fn whole_of(value: &DeValue) -> Option<u32> {
    let number = value.as_integer()?;
    u32::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Describes a value in a message.
fn kind(value: &DeValue) -> String {
    match value {
        DeValue::String(text) => format!("the string {}", quoted(text)),
        DeValue::Integer(number) => format!("the number {}", quoted(&number.to_string())),
        DeValue::Float(number) => format!("the number {}", quoted(number.as_str())),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
