//! Where posts come from: Reddit's API, the sample Reddit that ships with the program, and files.
//!
//! Every source answers with the same two things: [`Post`]s, and a [`Rejected`] for each thing that is no
//! post or not a whole one, so that one odd thing never costs its page or its file. Nothing here knows
//! where posts go.
//!
//! - [`reddit`]: the API's client: one token, a quota, retries, and a typed outcome for every refusal.
//! - [`dump`]: files given to `import`, block by block; [`lines`] and [`table`] read their rows, [`filter`] tells
//!   which are wanted, `sparse` parses what a post is made of.
//! - [`sample`]: a small Reddit on the loopback interface, so that everything can be tried without a key.

use crate::domain::Post;

pub mod dump;
pub mod filter;
pub mod lines;
pub mod reddit;
pub mod sample;
mod sparse;
pub mod table;

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

/// Something that could not be taken as a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Where it stood, counted from 1: `child 7` of a listing, `line 12` of a file.
    pub at: String,
    /// Why, as a fragment: `a comment, not a post`. Holds nothing of the post's text.
    pub reason: String,
}
