//! Fullnames of posts and comments, parsed from ids and URLs.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Reddit's name for a post or a comment: `t3_` or `t1_`, followed by a base-36 id, as in `t3_1a2b3c`.
///
/// ```
/// use topicmill_core::Fullname;
///
/// let post: Fullname = "1a2b3c".parse().unwrap();
/// assert_eq!(post.as_str(), "t3_1a2b3c");
/// let comment: Fullname = "t1_1a2b3c".parse().unwrap();
/// assert!(comment.is_comment() && comment != post);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fullname(String);

const POST: &str = "t3_";
const COMMENT: &str = "t1_";

string_enum! {
    /// The kinds of things that are stored.
    #[derive(Default)]
    ThingKind {
        /// A post, `t3_…`.
        #[default]
        Post = "post",
        /// A comment, `t1_…`.
        Comment = "comment",
    }
}

impl ThingKind {
    /// Returns the plural: `posts` or `comments`.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Post => "posts",
            Self::Comment => "comments",
        }
    }

    /// Returns the kind with this plural.
    pub fn of_plural(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.plural() == word)
    }
}

/// An error for text that is not the fullname or URL of a post or a comment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither the fullname of a post (`t3_` and a base-36 id) or comment (`t1_…`) nor the URL of one"
)]
pub struct FullnameError(String);

impl Fullname {
    /// Parses an id, the URL or the path of the page of a post or a comment, or a short link such as
    /// `https://redd.it/1a2b3c`.
    ///
    /// # Errors
    /// Returns [`FullnameError`] if the text is none of these. URLs of other sites are rejected, and so are `/s/` share
    /// links, which only Reddit can resolve.
    pub fn from_url(text: &str) -> Result<Self, FullnameError> {
        let text = text.trim();
        if !text.contains('/') {
            return text.parse();
        }
        let lower = text.to_ascii_lowercase();
        let (has_scheme, address) = match lower.split_once("://") {
            Some((_, address)) => (true, address),
            None => (false, &*lower),
        };
        let path = address.split(['?', '#']).next().unwrap_or_default();
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let host = parts.first().copied().unwrap_or_default();
        let is_site = host == "reddit.com" || host.ends_with(".reddit.com");
        let is_short = ["redd.it", "www.redd.it"].contains(&host);
        if is_site || is_short {
            parts.remove(0);
        } else if has_scheme {
            parts.clear();
        }
        // A subreddit, or a post by its title, may be called `comments` too.
        let path = match parts[..] {
            ["r" | "u" | "user", _, ref path @ ..] => path,
            _ => &parts,
        };
        let start = path.iter().position(|part| *part == "comments");
        let parsed = match path[start.unwrap_or_default()..] {
            [id] if is_short => id.parse().ok(),
            ["gallery" | "tb" | "comments", id] | ["comments", id, _] => id.parse().ok(),
            ["comments", _, _, id] => Self::of(ThingKind::Comment, id).ok(),
            _ => None,
        };
        parsed.ok_or_else(|| FullnameError(text.chars().take(80).collect()))
    }

    /// Returns the fullname of the thing of a kind with an id, which may have its prefix.
    ///
    /// # Errors
    /// Returns [`FullnameError`] if the text is neither an id nor the fullname of a thing of this kind.
    pub fn of(kind: ThingKind, text: &str) -> Result<Self, FullnameError> {
        let prefix = match kind {
            ThingKind::Post => POST,
            ThingKind::Comment => COMMENT,
        };
        let lower = text.trim().to_ascii_lowercase();
        let without_prefix = lower.strip_prefix(prefix).unwrap_or(&lower);
        let id = without_prefix.trim_start_matches('0');
        if (1..=16).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            Ok(Self(format!("{prefix}{id}")))
        } else {
            Err(FullnameError(text.chars().take(40).collect()))
        }
    }

    /// Returns true for a comment, false for a post.
    pub fn is_comment(&self) -> bool {
        self.0.starts_with(COMMENT)
    }

    /// Returns the kind of the thing.
    pub fn kind(&self) -> ThingKind {
        if self.is_comment() {
            ThingKind::Comment
        } else {
            ThingKind::Post
        }
    }

    /// Returns what a reader knows the thing by: the title of a post, or the body of a comment.
    pub fn title_or_body<'t>(&self, title: &'t str, body: &'t str) -> &'t str {
        if self.is_comment() { body } else { title }
    }

    /// Returns the id without the prefix.
    pub fn id(&self) -> &str {
        &self.0[POST.len()..]
    }

    /// Returns the text form, `t3_…`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Fullname {
    type Err = FullnameError;

    /// Parses `t3_ID`, `t1_ID`, or a post's bare `ID`, as in dumps.
    ///
    /// An id is a number, so `T3_0AA1` names the same post as `t3_aa1` and is normalised to it. Otherwise a purged post
    /// could return under a different spelling.
    fn from_str(text: &str) -> Result<Self, FullnameError> {
        // Every fullname that is read from the database is normalised.
        if is_fullname(text) {
            return Ok(Self(text.to_owned()));
        }
        let prefix = text.trim().get(..COMMENT.len());
        let is_comment = prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(COMMENT));
        let kind = if is_comment {
            ThingKind::Comment
        } else {
            ThingKind::Post
        };
        Self::of(kind, text)
    }
}

/// Returns true if the text is a normalised fullname.
fn is_fullname(text: &str) -> bool {
    let id = text
        .strip_prefix(POST)
        .or_else(|| text.strip_prefix(COMMENT));
    id.is_some_and(|id| {
        let mut bytes = id.bytes();
        (1..=16).contains(&id.len())
            && !id.starts_with('0')
            && bytes.all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
    })
}

impl fmt::Display for Fullname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_an_id_parse_to_one_fullname() {
        for same in ["1a2b", "t3_0001a2b", "T3_1A2B", " 1a2B\n"] {
            assert_eq!(same.parse::<Fullname>().unwrap().as_str(), "t3_1a2b");
        }
        for bad in [
            "",
            "0",
            "t3_",
            "t1_t3_abc",
            "t2_abc",
            "t3_t3_abc",
            "t3_a b",
            "t3_ abc",
            "t3_abc;--",
            "t3_ábc",
            "t3_00000000000000000",
            "t3_12345678901234567",
        ] {
            assert!(bad.parse::<Fullname>().is_err(), "{bad}");
        }
    }

    #[test]
    fn only_urls_of_posts_and_comments_parse_to_fullnames() {
        let addresses = "https://www.reddit.com/r/food/comments/abc123/x/ https://www.reddit.com/comments/ABC123 \
            https://old.reddit.com/r/food/comments/abc123/?utm_source=share reddit.com/r/food/comments/abc123/rye#top \
            /r/comments/comments/abc123/x/ https://redd.it/abc123 t3_abc123 abc123 \
            https://www.reddit.com/gallery/abc123 HTTPS://WWW.Reddit.com/R/Food/Comments/abc123/x/ comments/abc123";
        for address in addresses.split(' ') {
            let post = Fullname::from_url(address);
            assert_eq!(post.unwrap().as_str(), "t3_abc123", "{address}");
        }
        let comments = "https://www.reddit.com/r/food/comments/abc123/x/DEF456/?context=3 \
            /r/comments/comments/abc123/comments/def456/ reddit.com/comments/abc123/comment/def456";
        for address in comments.split(' ') {
            let comment = Fullname::from_url(address);
            assert_eq!(comment.unwrap().as_str(), "t1_def456", "{address}");
        }
        let none = "https://www.reddit.com/r/food/s/aBcDeF \
            https://www.reddit.com/r/food/ https://i.redd.it/abc123.jpg https://a.example/abc123 // \
            https://a.example/comments/abc123 https://imgur.com/gallery/abc123 https://notreddit.com/comments/abc123/x";
        for none in none.split(' ') {
            assert!(Fullname::from_url(none).is_err(), "{none}");
        }
    }
}
