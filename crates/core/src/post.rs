//! Posts and comments as sources return them, and in the form that is stored: with the author policy applied, and the
//! text hashed.

use sha2::{Digest, Sha256};

use crate::reddit::thing_text;
use crate::{Fullname, PurgeReason, SourceKind, TextHash, Timestamp, hex};

/// A post or a comment as its source last returned it; [`Fullname::kind`] distinguishes them.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a post on Reddit has this many independent flags"
)]
pub struct Post {
    /// The key of the post.
    pub fullname: Fullname,
    /// Subreddit without `r/`, as Reddit spells it.
    pub subreddit: String,
    /// Title, without NUL. Empty for comments, until the store adds the title of the post.
    pub title: String,
    /// Body, without NUL. Empty for links. A crosspost without a body takes its parent's.
    pub selftext: String,
    /// The post and the comment that a comment replies to; empty for posts.
    pub reply: Reply,
    /// Parent of a crosspost. The text comes from the parent and is removed with it.
    pub crosspost_parent: Option<Fullname>,
    /// Target of a link post.
    pub url: Option<String>,
    /// Path of the post's page on Reddit.
    pub permalink: Option<String>,
    /// Author as Reddit names it; [`AuthorPolicy`] decides how it is stored. `None` if deleted.
    pub author: Option<String>,
    /// Upvotes minus downvotes.
    pub score: Option<i64>,
    /// True if an archive captured the post right after it was posted, so that the score, ratio and number of comments
    /// are not meaningful yet.
    pub score_is_placeholder: bool,
    /// Share of upvotes, 0 to 1.
    pub upvote_ratio: Option<f64>,
    /// Number of comments.
    pub num_comments: Option<i64>,
    /// Link flair text.
    pub flair: Option<String>,
    /// True if marked not safe for work.
    pub over_18: bool,
    /// True for a text post, false for a link.
    pub is_self: bool,
    /// True if pinned by a moderator: listed first, and not counted towards a limit.
    pub stickied: bool,
    /// The reason if it was deleted or removed on Reddit.
    pub removal: Option<PurgeReason>,
    /// Time of posting.
    pub created_at: Timestamp,
    /// Source of the post.
    pub source: SourceKind,
}

/// A comment's place in its thread. A field is `None` if the source does not say, and for posts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The comment's post.
    pub post: Option<Fullname>,
    /// The comment or the post that it replies to.
    pub parent: Option<Fullname>,
    /// True if its author is the author of the post.
    pub is_submitter: Option<bool>,
}

/// Returns an author's name from any common form: `u/Vic`, `/user/Vic`, or the address of a profile.
pub fn author_name(name: &str) -> &str {
    let name = name.trim();
    let after_host = name
        .rsplit_once("reddit.com/")
        .map_or(name, |(_, path)| path);
    let path = after_host.strip_prefix('/').unwrap_or(after_host);
    match path.split_once('/') {
        Some((start, name)) if ["u", "user"].iter().any(|u| start.eq_ignore_ascii_case(u)) => {
            name.split(['/', '?', '#']).next().unwrap_or(name)
        }
        _ => name,
    }
}

/// The policy for storing authors' names.
#[derive(Debug, Clone)]
pub enum AuthorPolicy {
    /// Names are stored unchanged.
    Stored,
    /// Names are replaced with a hash that uses this key.
    Hashed(String),
}

impl AuthorPolicy {
    /// Returns an author's name as it is stored.
    pub fn apply(&self, author: &str) -> String {
        match self {
            Self::Stored => author.to_owned(),
            Self::Hashed(key) => {
                // Reddit's names are unique without regard to case. The key has a fixed length, so the boundary between
                // key and name is unambiguous.
                let keyed = Sha256::new().chain_update(key.as_bytes());
                let digest = keyed.chain_update(author.to_lowercase()).finalize();
                format!("u_{}", hex(&digest[..8]))
            }
        }
    }

    /// Prepares posts for the store: applies the policy to the authors' names, and hashes the text.
    pub fn prepare(&self, posts: impl IntoIterator<Item = Post>) -> Vec<ReadyPost> {
        let ready = |mut post: Post| {
            post.author = post.author.as_deref().map(|author| self.apply(author));
            ReadyPost {
                text_hash: TextHash::new(&thing_text(&post.fullname, &post.title, &post.selftext)),
                rank: None,
                post,
            }
        };
        posts.into_iter().map(ready).collect()
    }
}

/// A post that is ready for the store: the author follows the [`AuthorPolicy`], and the text is hashed.
///
/// Only [`AuthorPolicy::prepare`] creates one, to prevent storing an author's name by accident:
///
/// ```compile_fail
/// fn store(post: topicmill_core::Post, text_hash: topicmill_core::TextHash) {
///     topicmill_core::ReadyPost { post, text_hash, rank: None };
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ReadyPost {
    post: Post,
    text_hash: TextHash,
    /// Position on the listing, from 0; `None` if the post was not read from a listing.
    pub rank: Option<u32>,
}

impl ReadyPost {
    /// Returns the hash of the text that models read.
    pub const fn text_hash(&self) -> &TextHash {
        &self.text_hash
    }

    /// Returns the post with other text and without a link: a crosspost without what it shows, or a comment with the
    /// title of its post.
    #[must_use]
    pub fn with_text(&self, title: &str, selftext: &str) -> Self {
        let post = Post {
            title: title.to_owned(),
            selftext: selftext.to_owned(),
            url: None,
            ..self.post.clone()
        };
        Self {
            text_hash: TextHash::new(&thing_text(&post.fullname, title, selftext)),
            post,
            ..*self
        }
    }
}

impl std::ops::Deref for ReadyPost {
    type Target = Post;

    fn deref(&self) -> &Post {
        &self.post
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_author_is_one_name() {
        for form in [
            "Vic",
            " u/Vic",
            "/u/Vic",
            "/U/Vic/",
            "/user/Vic",
            "https://www.reddit.com/user/Vic/",
            "reddit.com/u/Vic?sort=new",
        ] {
            assert_eq!(author_name(form), "Vic", "{form}");
        }
    }
}
