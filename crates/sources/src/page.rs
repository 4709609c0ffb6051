//! The interface of all sources: pages of posts, listed or through time.
//!
//! A source that lists a subreddit as it is now gives a [`ListingPage`] behind another; an archive gives a
//! [`TimePage`] from a border in time on. What is no post, or not a whole one, is [`Rejected`] and costs nobody else.

use futures_util::future::BoxFuture;

use super::error::SourceError;
use topicmill_core::record::Traffic;
use topicmill_core::{Listing, Post, SourceKind, Timestamp};
use topicmill_http::{PoliteClient, Site};

/// Posts of a page, unless one second of an archive holds more. Reddit gives no more.
pub const PAGE_LIMIT: u32 = 100;
/// The most that an archive is asked for. Arctic Shift then gives between 100 and 1,000 rows.
pub const LARGEST_PAGE: u32 = 1_000;

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ListingPage {
    /// Its posts, in the listing's order.
    pub posts: Vec<Post>,
    /// Its children that are no post, or not a whole one.
    pub rejected: Vec<Rejected>,
    /// Fullname to ask the next page with; `None` at the end.
    pub after: Option<String>,
}

/// Posts that follow each other in time.
#[derive(Debug, Clone, PartialEq)]
pub struct TimePage {
    /// Its posts, in the order that was asked for.
    pub posts: Vec<Post>,
    /// Its rows that are no post, or not a whole one.
    pub rejected: Vec<Rejected>,
    /// When the last of its rows was posted; `None` without rows.
    pub ends_at: Option<Timestamp>,
    /// Rows it was asked for in the end: fewer than at first where that was too much for the archive.
    pub limit: u32,
    /// True if there may be more after it.
    pub full: bool,
}

/// The direction in which an archive is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeOrder {
    /// From now, or from a border, into the past.
    NewestFirst,
    /// From a border towards now.
    OldestFirst,
}

/// Something that could not be taken as a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its position, counted from 1: `child 7` of a listing, `line 12` of a file.
    pub at: String,
    /// Why, as a fragment: `a comment, not a post`. Holds nothing of the post's text.
    pub reason: String,
}

/// The future of a source's response.
pub type Asked<'a, T> = BoxFuture<'a, Result<T, SourceError>>;

/// A source of posts.
pub trait Source: Send + Sync {
    /// Returns the kind that its posts are marked with.
    fn kind(&self) -> SourceKind;

    /// The client that asks it.
    fn http(&self) -> &PoliteClient;

    /// Returns how it is read: listed or through time.
    fn paging(&self) -> Paging<'_>;

    /// Under what name processes share its quota; `None`: each has its own.
    fn shared_quota(&self) -> Option<String> {
        None
    }

    /// Returns the traffic so far.
    fn traffic(&self) -> Traffic {
        self.http().traffic()
    }
}

/// The two ways in which sources are read.
#[derive(Clone, Copy)]
pub enum Paging<'a> {
    /// Listings as they are now, page behind page.
    Listed(&'a dyn Listed),
    /// All posts through time.
    Archived(&'a dyn Archived),
}

/// A source that lists a subreddit as it is now.
pub trait Listed: Send + Sync {
    /// Up to `limit` posts and whatever is stickied, from the start or behind the fullname `after`.
    fn page<'a>(
        &'a self,
        subreddit: &'a str,
        listing: Listing,
        limit: u32,
        after: Option<&'a str>,
    ) -> Asked<'a, ListingPage>;
}

/// A source that has the posts of a subreddit through time.
pub trait Archived: Send + Sync {
    /// Up to `limit` posts from the second `border` on, that second included; without a border from the newest post
    /// or the oldest.
    fn page<'a>(
        &'a self,
        subreddit: &'a str,
        way: TimeOrder,
        border: Option<Timestamp>,
        limit: u32,
    ) -> Asked<'a, TimePage>;
}

/// Returns the name of a source for messages.
pub const fn site_of(kind: SourceKind) -> Site {
    let about = kind.traits();
    Site {
        name: about.title,
        section: about.section,
        one_at_a_time: matches!(kind, SourceKind::ArcticShift),
    }
}

/// Checks a subreddit's name as it may stand in a URL.
///
/// # Errors
/// [`SourceError::Subreddit`], which says what a name looks like.
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
    fn a_name_cannot_leave_its_place_in_the_url() {
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
