//! Pages of posts, in the order of a listing or of their creation.
//!
//! A source of listings returns one [`ListingPage`] after another; an archive returns a [`TimePage`] that begins at a
//! start time. Each item that is not a complete post is [`Rejected`] and does not affect the others.

use super::error::SourceError;
use topicmill_core::{Post, RejectReason, SourceKind, Timestamp};
use topicmill_http::Site;

/// Usual maximum number of posts on a page, as on Reddit. A larger page is requested only from an archive, and only if
/// one second contains more posts than that.
pub const PAGE_LIMIT: u32 = 100;
/// Maximum number of posts requested from an archive. Arctic Shift returns 100 to 1,000 rows for such a request.
pub const LARGEST_PAGE: u32 = 1_000;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListingPage {
    /// The posts, in the order of the listing.
    pub posts: Vec<Post>,
    /// Children that are not complete posts.
    pub rejected: Vec<Rejected>,
    /// In a thread, the number of comments that Reddit leaves out.
    pub left_out: u64,
    /// Fullname to request the next page with; `None` at the end.
    pub after: Option<String>,
}

/// A page of posts in order of creation time.
#[derive(Debug, Clone, PartialEq)]
pub struct TimePage {
    /// The posts, in the requested order.
    pub posts: Vec<Post>,
    /// Rows that are not complete posts.
    pub rejected: Vec<Rejected>,
    /// Creation time of the last row; `None` if there are no rows.
    pub ends_at: Option<Timestamp>,
    /// Number of rows requested by the last try; smaller than the first if the archive was overloaded.
    pub limit: u32,
    /// True if there may be more rows after this page.
    pub full: bool,
}

/// The direction in which an archive is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrder {
    /// From now, or from a start time, into the past.
    NewestFirst,
    /// From a start time towards now.
    OldestFirst,
}

/// An item that is not a complete post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The position of the item, from 1: `child 7` in a listing, `line 12` in a file.
    pub at: String,
    /// The reason.
    pub reason: RejectReason,
}

/// Returns the site of a source, for messages.
pub const fn site_for(kind: SourceKind) -> Site {
    let about = kind.traits();
    Site {
        name: about.title,
        section: about.section,
        evenly_spaced: matches!(kind, SourceKind::ArcticShift),
    }
}

/// Checks that a subreddit's name is valid in a URL.
///
/// # Errors
/// Returns [`SourceError::Subreddit`], which describes valid names.
pub fn check_subreddit(name: &str) -> Result<(), SourceError> {
    let valid = (2..=21).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if valid {
        Ok(())
    } else {
        Err(SourceError::Subreddit(name.chars().take(40).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subreddit_name_cannot_change_the_url() {
        for good in ["climate", "ab", "personalfinance", "a_b_c_1"] {
            assert!(check_subreddit(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "a",
            "../api",
            "a/b",
            "a b",
            "r?x",
            "naïve",
            "a234567890123456789012",
        ] {
            assert!(check_subreddit(bad).is_err(), "{bad}");
        }
    }
}
