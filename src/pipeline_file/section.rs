//! A table of a file, and its values by key: each of the kind that is wanted, or a mistake with its place.

use std::fmt::Display;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::mistakes::{Findings, nearest, quoted};

/// A value, and where it stands.
#[derive(Debug)]
pub(super) struct Located<T> {
    pub at: usize,
    pub value: T,
}

/// A table of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    /// Where it begins.
    pub at: usize,
}

impl<'a> Section<'a> {
    /// A table that begins here; the file itself begins at 0.
    pub fn new(table: &'a DeTable<'a>, at: usize) -> Self {
        Self { table, at }
    }

    /// Its keys.
    pub fn keys(self) -> impl Iterator<Item = &'a Spanned<DeString<'a>>> {
        self.table.keys()
    }

    /// Keys that mean nothing here, each with the one that was most likely meant. `elsewhere`: keys of another place, and
    /// which that is.
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
                format!(": there are {}", here.join(", "))
            };
            found.wrong(at, format!("unknown key {}{hint}", quoted(key)));
        }
    }

    /// A value of any kind.
    pub fn get(self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let mut entries = self.table.iter();
        let (_, value) = entries.find(|(name, _)| name.get_ref().as_ref() == key)?;
        Some(value)
    }

    /// A value that is read in some way, or a mistake that says what was wanted.
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

    /// A text.
    pub fn text(self, key: &str, found: &mut Findings) -> Option<Located<String>> {
        let text = self.read(key, "a text in quotes", found, DeValue::as_str)?;
        clean(key, text.at, text.value, found)
    }

    /// One of a few words.
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

    /// A number, with a fraction or without.
    pub fn number(self, key: &str, found: &mut Findings) -> Option<Located<f64>> {
        self.read(key, "a number, as in 0.5", found, |value| match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            value => whole_of(value).map(f64::from),
        })
    }

    /// A whole number of 0 or more.
    pub fn whole(self, key: &str, found: &mut Findings) -> Option<Located<u32>> {
        self.read(key, "a whole number, as in 100", found, whole_of)
    }

    /// A list.
    pub fn list(self, key: &str, found: &mut Findings) -> Option<Located<&'a DeArray<'a>>> {
        self.read(key, "a list in square brackets", found, DeValue::as_array)
    }

    /// A list of texts, or one text for a list of one.
    pub fn texts(self, key: &str, found: &mut Findings) -> Vec<Located<String>> {
        if self.get(key).is_some_and(|value| value.get_ref().is_str()) {
            return self.text(key, found).into_iter().collect();
        }
        let wanted = "a list of texts, as in [\"one\", \"two\"]";
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

/// A text that every database stores.
fn clean(key: &str, at: usize, text: &str, found: &mut Findings) -> Option<Located<String>> {
    if text.contains('\0') {
        found.wrong(
            at,
            format!("`{key}` has a NUL, which no database stores: take it out"),
        );
        return None;
    }
    let value = text.to_owned();
    Some(Located { at, value })
}

/// A whole number of 0 or more.
pub(super) fn whole_of(value: &DeValue) -> Option<u32> {
    let number = value.as_integer()?;
    u32::from_str_radix(number.as_str(), number.radix()).ok()
}

/// What a value is, in words.
fn kind(value: &DeValue) -> String {
    match value {
        DeValue::String(text) => format!("the text {}", quoted(text)),
        DeValue::Integer(number) => format!("the number {}", quoted(&number.to_string())),
        DeValue::Float(number) => format!("the number {}", quoted(number.as_str())),
        DeValue::Boolean(value) => format!("`{value}`"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
