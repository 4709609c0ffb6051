//! The interface of sources, and the two kinds of them: Reddit's listings, which the sample Reddit has too, and an
//! archive.

use super::arctic_shift::{ArcticShift, IDS_LIMIT};
use super::error::SourceError;
use super::lookup::FoundPosts;
use super::reddit::{INFO_LIMIT, Reddit};
use topicmill_core::record::Traffic;
use topicmill_core::{Fullname, SourceKind, ThingKind};
use topicmill_http::PoliteClient;

/// A source of posts.
pub trait Source: Send + Sync {
    /// Returns the kind that marks this source's posts.
    fn kind(&self) -> SourceKind;

    /// Returns the HTTP client.
    fn http(&self) -> &PoliteClient;

    /// Returns how the source is read: as listings or as an archive.
    fn paging(&self) -> Paging<'_>;

    /// Returns the id that processes use to share the source's quota; `None` if the quota is not shared.
    fn shared_quota(&self) -> Option<String> {
        None
    }

    /// Returns the traffic so far.
    fn traffic(&self) -> Traffic {
        self.http().traffic()
    }
}

/// The way to read a source.
#[derive(Clone, Copy)]
pub enum Paging<'a> {
    /// As listings, page after page.
    Listing(&'a Reddit),
    /// As an archive, in order of creation time.
    Archive(&'a ArcticShift),
}

impl Paging<'_> {
    /// Returns the maximum number of posts in a request by id.
    pub const fn ids_limit(self) -> usize {
        let limit = match self {
            Self::Listing(_) => INFO_LIMIT,
            Self::Archive(_) => IDS_LIMIT,
        };
        limit as usize
    }

    /// Returns the number of requests that [`Self::posts`] sends for these posts, without retries: an archive gets one
    /// for posts and one for comments.
    pub fn requests_for(self, fullnames: &[Fullname]) -> u64 {
        match self {
            Self::Listing(_) => 1,
            Self::Archive(_) => {
                let is_requested = |kind| fullnames.iter().any(|name| name.kind() == kind);
                let kinds = ThingKind::ALL.iter().filter(|kind| is_requested(**kind));
                kinds.count() as u64
            }
        }
    }

    /// Requests at most [`Self::ids_limit`] posts and comments by id.
    ///
    /// # Errors
    /// Returns a [`SourceError`]; see [`SourceError::outcome`] for its meaning.
    pub async fn posts(self, fullnames: &[Fullname]) -> Result<FoundPosts, SourceError> {
        match self {
            Self::Listing(reddit) => reddit.posts(fullnames).await,
            Self::Archive(archive) => archive.posts(fullnames).await,
        }
    }
}

impl Source for Reddit {
    fn kind(&self) -> SourceKind {
        self.kind
    }

    fn http(&self) -> &PoliteClient {
        &self.http
    }

    fn paging(&self) -> Paging<'_> {
        Paging::Listing(self)
    }

    fn shared_quota(&self) -> Option<String> {
        // The sample Reddit belongs to this process, and so does its quota.
        (self.kind != SourceKind::Sample).then(|| self.quota_id())
    }
}

impl Source for ArcticShift {
    fn kind(&self) -> SourceKind {
        SourceKind::ArcticShift
    }

    fn http(&self) -> &PoliteClient {
        &self.http
    }

    fn paging(&self) -> Paging<'_> {
        Paging::Archive(self)
    }
}
