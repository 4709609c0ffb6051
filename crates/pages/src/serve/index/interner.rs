//! Stores repeated strings, such as subreddit names, once.

use std::collections::HashMap;

/// The number for a missing string.
pub const NONE: u32 = u32::MAX;

/// An interner: maps each string to a number and back.
#[derive(Debug, Default)]
pub struct Interner {
    texts: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Interner {
    /// Returns the number for a string.
    pub fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).expect("posts are fewer than 2^32");
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// Returns the strings, by number.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Returns, for each number, true if its string matches; the last element is for [`NONE`].
    pub fn matching(&self, is_wanted: impl Fn(Option<&str>) -> bool) -> Vec<bool> {
        let texts = self.texts.iter().map(|text| Some(text.as_str()));
        texts.chain([None]).map(is_wanted).collect()
    }
}

/// Returns true if there is no condition or the number satisfies it.
pub fn is_among(number: u32, wanted: Option<&[bool]>) -> bool {
    wanted.is_none_or(|wanted| wanted[(number as usize).min(wanted.len() - 1)])
}
