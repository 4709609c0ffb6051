//! The interface of sources, and the two kinds of them: Reddit's listings, which the sample Reddit has too, and an
//! archive.

use super::arctic_shift::ArcticShift;
use super::reddit::Reddit;
use topicmill_core::SourceKind;
use topicmill_core::record::Traffic;
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
