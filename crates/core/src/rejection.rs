//! Defines the reasons for rejecting records, and counts them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a record is not a complete post, as a fragment: `a comment, not a post`. Contains none of the post's
/// text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectReason {
    reason: String,
    /// The value found in the record, which differs from record to record.
    found: Option<String>,
}

impl RejectReason {
    /// Adds the value that was found in the record.
    #[must_use]
    pub fn with_found(self, found: String) -> Self {
        let found = Some(found);
        Self { found, ..self }
    }
}

impl<T: Into<String>> From<T> for RejectReason {
    fn from(reason: T) -> Self {
        let (reason, found) = (reason.into(), None);
        Self { reason, found }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}; it is {found}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// Counts of rejected records, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rejections(BTreeMap<String, u64>);

impl Rejections {
    /// Maximum number of reasons that are counted separately; a broken file could have a different one on each line.
    const MAX_REASONS: usize = 20;

    /// Counts one record by its reason, whatever value was found in it.
    pub fn add(&mut self, reason: &RejectReason) {
        // PostgreSQL rejects NUL in JSON, and a reason may quote the input.
        self.add_many(&reason.reason.replace('\0', ""), 1);
    }

    /// Adds all counts of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (reason, n) in &other.0 {
            self.add_many(reason, *n);
        }
    }

    fn add_many(&mut self, reason: &str, n: u64) {
        let room = self.0.len() < Self::MAX_REASONS || self.0.contains_key(reason);
        let reason = if room { reason } else { "other reasons" };
        *self.0.entry(reason.to_owned()).or_default() += n;
    }

    /// Returns the total over all reasons.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_counted_under_a_bounded_number_of_reasons() {
        let mut comments = Rejections::default();
        comments.add(&"a comment, not a post".into());
        comments.add(&"a comment, not a post".into());
        let mut all = Rejections::default();
        for i in 0..100 {
            all.add(&format!("reason {i}").into());
        }
        all.extend(&comments);
        assert_eq!(all.total(), 102);
        assert_eq!(all.0.len(), 21);
        let reasons = serde_json::to_value(&comments).unwrap();
        assert_eq!(reasons, serde_json::json!({"a comment, not a post": 2}));
    }
}
