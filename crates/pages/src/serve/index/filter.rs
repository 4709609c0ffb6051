//! The filters and sort orders for lists, and what a list returns.

/// The sort order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    /// Newest first.
    #[default]
    Newest,
    /// Highest score of the best label first.
    Surest,
    /// Smallest margin between the two best labels first.
    Closest,
    /// Highest Reddit score first.
    Reddit,
}

impl Sort {
    /// All orders, each with its URL value and display name.
    pub const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::Newest, "newest", "newest"),
        (Self::Surest, "surest", "highest label score"),
        (Self::Closest, "closest", "closest call"),
        (Self::Reddit, "reddit_score", "Reddit score"),
    ];
}

/// A list's filters and order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowFilter {
    /// A slug, `other`, `unsure`, `unlabelled` or `labelled`.
    pub outcome: Option<String>,
    /// The topic's slug.
    pub topic: Option<String>,
    /// Name of the subreddit, in upper or lower case.
    pub subreddit: Option<String>,
    /// Earliest Unix timestamp, inclusive.
    pub since: Option<i64>,
    /// Latest Unix timestamp, exclusive.
    pub until: Option<i64>,
    /// Lowest score of the best label.
    pub min_score: Option<f32>,
    /// Sort order.
    pub sort: Sort,
}

/// A position in a sorted list: (sort rank, post key).
pub type RowPosition = (i64, i64);

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SelectedRows {
    /// Positions of the posts on the page.
    pub keys: Vec<RowPosition>,
    /// True if there are more pages.
    pub more: bool,
    /// Number of posts that match the filter.
    pub total: u64,
}

/// A facet value, and the number of posts that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacetCount {
    /// The value, as the filter expects it.
    pub value: String,
    /// Number of posts that have this value and match the other filters.
    pub posts: u64,
}

/// A list's facet values, the ones with the most posts first, except for months. A facet's filter does not restrict the
/// facet's own values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facets {
    /// Label slugs, `other`, `unsure` and `unlabelled`.
    pub outcomes: Vec<FacetCount>,
    /// Topic slugs.
    pub topics: Vec<FacetCount>,
    /// Subreddits.
    pub subreddits: Vec<FacetCount>,
    /// Months in UTC, such as `2026-11`, the latest first.
    pub months: Vec<FacetCount>,
}
