//! The keywords of a topic, which decide for every source alike whether a post belongs to the topic.

use std::borrow::Cow;
use std::fmt;

use regex::{Regex, RegexBuilder};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::reddit::reddit_text;

/// Maximum size of the compiled keywords in bytes: room for ten thousand of them.
const MAX_SIZE: usize = 100 << 20;
/// The pattern of a character that is part of a word. An underscore is not, unlike in `\w`: Markdown marks words with
/// it.
const IN_WORD: &str = r"\p{Alphabetic}\p{M}\p{N}";

/// Keywords: words, prefixes such as `vaccin*`, and phrases such as `"long covid"`. They match at the borders of words in
/// the text that readers see, in either case. Without keywords, every post matches.
///
/// ```
/// use topicmill_core::Keywords;
///
/// let keywords = Keywords::parse(&["vaccin*", "\"long covid\""]).unwrap();
/// assert!(keywords.match_post("Vaccines", ""));
/// assert!(keywords.match_post("Help", "I have long\nCOVID."));
/// assert!(!keywords.match_post("Long", "covid"));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Keywords {
    entries: Vec<String>,
    regex: Option<Regex>,
}

impl Keywords {
    /// Parses keywords.
    ///
    /// # Errors
    /// A message if an entry is neither a word nor a prefix nor a phrase, or if there are too many.
    pub fn parse(entries: &[impl AsRef<str>]) -> Result<Self, String> {
        if entries.is_empty() {
            return Ok(Self::default());
        }
        let entries: Vec<&str> = entries.iter().map(AsRef::as_ref).collect();
        let patterns: Result<Vec<String>, String> = entries.iter().map(|e| pattern(e)).collect();
        let alternation = format!("(?:^|[^{IN_WORD}])(?:{})", patterns?.join("|"));
        let regex = RegexBuilder::new(&alternation)
            .case_insensitive(true)
            .size_limit(MAX_SIZE)
            .build()
            .map_err(|error| format!("the keywords are too many or too long: {error}"))?;
        Ok(Self {
            entries: entries.into_iter().map(str::to_owned).collect(),
            regex: Some(regex),
        })
    }

    /// Returns true if every post matches.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entries as they were written.
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// Returns true if any keyword occurs in the title or in the text.
    pub fn match_post(&self, title: &str, text: &str) -> bool {
        self.regex.as_ref().is_none_or(|regex| {
            let is_match = |text: &str| regex.is_match(&composed(&reddit_text(text)));
            is_match(title) || is_match(text)
        })
    }
}

/// Returns the text with composed characters: `é` may also be an `e` and an accent.
fn composed(text: &str) -> Cow<'_, str> {
    if is_nfc(text) {
        Cow::Borrowed(text)
    } else {
        text.nfc().collect()
    }
}

impl PartialEq for Keywords {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Eq for Keywords {}

impl fmt::Display for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.entries.join(", "))
    }
}

impl<'de> Deserialize<'de> for Keywords {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = Vec::<String>::deserialize(deserializer)?;
        if entries.is_empty() {
            return Err(D::Error::custom(
                "`match` is empty, so no post would match: leave it out to collect every post",
            ));
        }
        Self::parse(&entries).map_err(D::Error::custom)
    }
}

/// Returns the pattern of a keyword, which follows the border of a word.
fn pattern(keyword: &str) -> Result<String, String> {
    let phrase = keyword
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let border = format!("(?:$|[^{IN_WORD}])");
    let (inner, end) = match (phrase, keyword.strip_suffix('*')) {
        (Some(phrase), _) => (phrase, &*border),
        (None, Some(prefix)) => (prefix, ""),
        (None, None) => (keyword, &*border),
    };
    let is_one = phrase.is_some() || inner.split_whitespace().eq([inner]);
    let has_letter = inner.chars().any(char::is_alphanumeric);
    if !is_one || !has_letter || inner.contains(['*', '"', '\0']) {
        return Err(format!(
            "`{keyword}` is not a keyword: write one word, a prefix such as `vaccin*`, or a quoted phrase such as \
             '\"long covid\"'"
        ));
    }
    // Phones write a typographic apostrophe.
    let escaped = |word| regex::escape(&composed(word)).replace(['\'', '’'], "['’]");
    let words: Vec<String> = inner.split_whitespace().map(escaped).collect();
    Ok(words.join(r"\s+") + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_match_at_word_borders_whatever_the_case() {
        let entries = [
            "vaccin*",
            "\"long covid\"",
            "C++",
            "RSV",
            "épidémie*",
            "流感*",
            "don't",
            "covid-19",
            "a.b(c)",
        ];
        let keywords = Keywords::parse(&entries).unwrap();
        for text in [
            "Vaccines?",
            "vaccin",
            "anti-vaccination",
            "https://a.example/vaccine/x",
            "mRNA/RSV",
            "LONG \n covid!",
            "in C++.",
            "(c++)",
            "ÉPIDÉMIES",
            "E\u{301}PIDE\u{301}MIE",
            "流感疫苗",
            "I don’t",
            "Don't!",
            "RSV's",
            "_vaccine_ #my_vaccine **long** _covid_",
            "post-covid-19 (a.b(c))",
            "va\\ccin\u{200b}e \\*RSV\\*",
        ] {
            assert!(keywords.match_post(text, ""), "{text}");
            assert!(keywords.match_post("", text), "{text}");
        }
        for text in [
            "",
            "unvaccinated",
            "long covids",
            "along covid",
            "long-covid",
            "c+",
            "xc++",
            "RSVP",
            "vac cine",
            "RSV\u{301}",
            "covid-191",
            "axb(c)",
        ] {
            assert!(!keywords.match_post(text, text), "{text}");
        }
        assert!(Keywords::default().match_post("", ""));
    }

    #[test]
    fn anything_but_a_word_a_prefix_or_a_phrase_is_an_error() {
        for entry in [
            "",
            " ",
            "*",
            "a*b",
            "*a",
            "a**",
            "two words",
            " a",
            "two words*",
            "\"a",
            "a\"",
            "\"\"",
            "\" \"",
            "\"a*\"",
            "\"a\" b\"",
            "--",
            "\"",
            "a\0",
        ] {
            assert!(Keywords::parse(&[entry]).is_err(), "{entry}");
        }
    }

    #[test]
    fn there_is_room_for_ten_thousand_keywords() {
        let many: Vec<String> = (0..10_000).map(|n| format!("vaccination{n}*")).collect();
        let keywords = Keywords::parse(&many).unwrap();
        assert!(keywords.match_post("", "Vaccination9999x"));
    }
}
