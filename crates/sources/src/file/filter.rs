//! Filters the rows of a file.
//!
//! A monthly dump has forty million rows. Few of them are wanted, and parsing them all would take hours. A JSON row is
//! therefore checked first as raw bytes, which are searched for the subreddit and the creation time. Only a row that
//! might match is parsed, and the post is checked again.

use std::collections::HashSet;

use memchr::memmem::Finder;

use crate::post::bare_subreddit;
use topicmill_core::{Post, ThingKind, Timestamp};

/// Maximum length, in bytes, of a subreddit name that is compared without parsing the row.
const LONGEST_NAME: usize = 64;

/// A filter for the posts in a file.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Names in lower case; `None` for every subreddit.
    subreddits: Option<HashSet<Vec<u8>>>,
    /// Start of the matching time range, in seconds since 1970.
    from: i64,
    /// End of the matching time range, exclusive, in seconds since 1970.
    until: i64,
    /// `None` for both.
    kind: Option<ThingKind>,
    subreddit_key: Finder<'static>,
    created_key: Finder<'static>,
}

impl Default for Filter {
    /// Matches everything.
    fn default() -> Self {
        Self::new(None::<[&str; 0]>, None, None)
    }
}

impl Filter {
    /// Creates a filter for posts of these subreddits (`None` for all) that were created at or after `from` and before
    /// `until`.
    pub fn new<'a>(
        subreddits: Option<impl IntoIterator<Item = &'a str>>,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Self {
        let secs = |time: Timestamp| time.as_datetime().timestamp();
        let lower = |name: &str| name.to_ascii_lowercase().into_bytes();
        Self {
            subreddits: subreddits.map(|names| names.into_iter().map(lower).collect()),
            from: from.map_or(i64::MIN, secs),
            until: until.map_or(i64::MAX, secs),
            kind: None,
            subreddit_key: Finder::new("\"subreddit\""),
            created_key: Finder::new("\"created_utc\""),
        }
    }

    /// Matches only posts or only comments; `None`: both.
    #[must_use]
    pub fn of_kind(self, kind: Option<ThingKind>) -> Self {
        Self { kind, ..self }
    }

    /// Returns a canonical description: equal filters have equal descriptions.
    pub fn describe(&self) -> String {
        let names = self.subreddits.as_ref().map(|names| {
            let names = names.iter().map(|name| String::from_utf8_lossy(name));
            let mut names: Vec<_> = names.collect();
            // The names are sorted because a set has no order and the description is part of an import's key.
            names.sort_unstable();
            names.join(",")
        });
        let kind = self.kind.map_or("both", ThingKind::as_str);
        format!("{names:?} {} {} {kind}", self.from, self.until)
    }

    /// Returns true if the post matches the filter.
    pub fn matches(&self, post: &Post) -> bool {
        self.kind.is_none_or(|kind| kind == post.fullname.kind())
            && self.matches_name(post.subreddit.as_bytes())
            && self.matches_secs(post.created_at.as_datetime().timestamp())
    }

    /// Returns false only if the line, a row in JSON, certainly does not match.
    ///
    /// A key may occur more than once, for example in a crosspost's parent; one matching value suffices. Quotes in a
    /// string are escaped, so a key in quotes cannot be part of a string.
    pub fn may_match(&self, line: &[u8]) -> bool {
        let any_name = self.subreddits.is_none();
        let any_time = self.from == i64::MIN && self.until == i64::MAX;
        let is_name = |value: &[u8]| self.may_match_name(value);
        let is_time = |value: &[u8]| self.may_match_time(value);
        (any_name || any_value_matches(&self.subreddit_key, line, is_name))
            && (any_time || any_value_matches(&self.created_key, line, is_time))
    }

    /// Returns false only if the JSON value at the start of the bytes is certainly another subreddit's name.
    fn may_match_name(&self, value: &[u8]) -> bool {
        let Some(rest) = value.strip_prefix(b"\"") else {
            return true;
        };
        match memchr::memchr2(b'"', b'\\', &rest[..rest.len().min(LONGEST_NAME)]) {
            Some(end) if rest[end] == b'"' => self.matches_name(&rest[..end]),
            _ => true,
        }
    }

    /// Returns false only if the JSON value at the start of the bytes is certainly a time outside the range.
    fn may_match_time(&self, value: &[u8]) -> bool {
        let value = value.strip_prefix(b"\"").unwrap_or(value);
        let digits = leading_digits(value);
        let end = match value.get(digits) {
            Some(b'.') => digits + 1 + leading_digits(&value[digits + 1..]),
            _ => digits,
        };
        let is_whole = matches!(value.get(end), Some(b',' | b'}' | b'"' | b' '));
        let secs = std::str::from_utf8(&value[..digits]).ok();
        match secs.and_then(|secs| secs.parse().ok()) {
            Some(secs) if is_whole => self.matches_secs(secs),
            // Other forms, such as exponents, are left to the parser.
            _ => true,
        }
    }

    fn matches_name(&self, name: &[u8]) -> bool {
        let Some(names) = &self.subreddits else {
            return true;
        };
        // People may write `/r/food/`; Reddit and its archives use the bare name.
        let is_slash_or_space = |byte: &u8| *byte == b'/' || byte.is_ascii_whitespace();
        if name.iter().any(is_slash_or_space) {
            let bare = std::str::from_utf8(name).map(bare_subreddit);
            let bare = bare.unwrap_or_default();
            return names.contains(&*bare.to_ascii_lowercase().into_bytes());
        }
        let mut lower = [0; LONGEST_NAME];
        // The copy is on the stack because this runs for each of forty million rows.
        let Some(lower) = lower.get_mut(..name.len()) else {
            return names.contains(&name.to_ascii_lowercase());
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        names.contains(&*lower)
    }

    fn matches_secs(&self, secs: i64) -> bool {
        (self.from..self.until).contains(&secs)
    }
}

fn leading_digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns true if one of a key's values matches or the key is missing.
fn any_value_matches(
    key: &Finder<'_>,
    line: &[u8],
    mut matches: impl FnMut(&[u8]) -> bool,
) -> bool {
    let mut has_key = false;
    for start in key.find_iter(line) {
        let rest = line[start + key.needle().len()..].trim_ascii_start();
        // Without a colon, the match is not a key but a string value, such as the title "subreddit".
        if let Some(value) = rest.strip_prefix(b":") {
            has_key = true;
            if matches(value.trim_ascii_start()) {
                return true;
            }
        }
    }
    !has_key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: i64) -> Option<Timestamp> {
        Timestamp::from_epoch_secs(secs)
    }

    #[test]
    fn rows_from_other_subreddits_are_excluded_without_parsing() {
        let filter = Filter::new(Some(["Food"]), None, None);
        for matching in [
            r#"{"subreddit" : "FOOD"}"#,
            r#"{"crosspost_parent_list":[{"subreddit":"music"}],"subreddit":"food"}"#,
            // A search of the bytes cannot exclude these.
            r#"{"subreddit":"f\u006fod"}"#,
            r#"{"title":"\"subreddit\":\"music\""}"#,
            "not json",
        ] {
            assert!(filter.may_match(matching.as_bytes()), "{matching}");
        }
        for excluded in [
            r#"{"subreddit":"music"}"#,
            r#"{"subreddit": "foods"}"#,
            r#"{"title":"\"subreddit\":\"food\"","subreddit":"music"}"#,
            r#"{"subreddit_id":"food","subreddit":"music"}"#,
        ] {
            assert!(!filter.may_match(excluded.as_bytes()), "{excluded}");
        }
        assert!(Filter::default().may_match(br#"{"subreddit":"music"}"#));
    }

    #[test]
    fn rows_outside_the_time_range_are_excluded_without_parsing() {
        let filter = Filter::new(None::<[&str; 0]>, secs(100), secs(200));
        for matching in [
            r#"{"created_utc":100}"#,
            r#"{"created_utc": 199.9}"#,
            r#"{"created_utc":"150"}"#,
            r#"{"created_utc":1.5e2}"#,
            r#"{"created_utc":null}"#,
            "{}",
        ] {
            assert!(filter.may_match(matching.as_bytes()), "{matching}");
        }
        for excluded in [
            r#"{"created_utc":99}"#,
            r#"{"created_utc":"200"}"#,
            r#"{"created_utc":200.0, "x": 150}"#,
        ] {
            assert!(!filter.may_match(excluded.as_bytes()), "{excluded}");
        }
    }
}
