//! Defines the reasons for purging posts.

string_enum! {
    /// The reason why a post was purged.
    PurgeReason {
        /// The author deleted the post.
        Deleted = "deleted",
        /// Moderators or Reddit removed the post.
        Removed = "removed",
        /// Reddit no longer returns the post.
        Missing = "missing",
        /// A user of topicmill requested the purge.
        Requested = "requested",
        /// The post is a crosspost whose parent was purged. Stored as `shown`, because the crosspost showed the
        /// parent's text.
        ParentPurged = "shown",
    }
}

impl PurgeReason {
    /// Returns true if the post may be stored again once Reddit returns it again.
    ///
    /// Moderators can approve a removed post, and closed subreddits can reopen. A crosspost may return when no post
    /// that it shows is purged. Deleted and requested posts never return.
    pub const fn is_reversible(self) -> bool {
        matches!(self, Self::Removed | Self::Missing | Self::ParentPurged)
    }
}
