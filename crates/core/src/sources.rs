//! Defines the table of sources. Adding a source starts with one row here.

use crate::UnknownVariant;

string_enum! {
    /// The order in which Reddit lists a subreddit.
    Listing {
        /// Reddit's default order.
        Hot = "hot",
        /// Newest first.
        New = "new",
        /// Best scores of the day first.
        Top = "top",
        /// Posts that are gaining votes first.
        Rising = "rising",
    }
}

/// The properties of a source, apart from how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceTraits {
    /// Display name.
    pub title: &'static str,
    /// Section in the settings, and key of its counts in the run record.
    pub section: &'static str,
    /// True if its posts are on Reddit now. Archives and files may contain posts that are gone.
    pub is_live: bool,
    /// True if its text is HTML-escaped, with `&amp;` for `&`. Reddit's API escapes text unless the request contains
    /// `raw_json=1`, which topicmill sends. Archives and files contain responses to requests without this parameter.
    pub is_escaped: bool,
    /// True if it requires the user's credentials.
    pub needs_key: bool,
    /// Supported listings; empty if `collect` cannot read from it.
    pub listings: &'static [Listing],
}

/// Declares the sources and their traits.
macro_rules! sources {
    ($($(#[$meta:meta])* $variant:ident = $word:literal { $($field:ident: $value:expr),+ $(,)? }),+ $(,)?) => {
        string_enum! {
            /// The source of a post.
            SourceKind { $($(#[$meta])* $variant = $word),+ }
        }

        impl SourceKind {
            /// Returns the properties of the source.
            pub const fn traits(self) -> &'static SourceTraits {
                match self { $(Self::$variant => &SourceTraits { $($field: $value),+ }),+ }
            }
        }
    };
}

sources! {
    /// Reddit's own API.
    Reddit = "reddit" {
        title: "Reddit", section: "reddit", is_live: true, is_escaped: false, needs_key: true,
        listings: Listing::ALL,
    },
    /// The sample Reddit included in the program.
    Sample = "sample" {
        title: "Reddit", section: "reddit", is_live: true, is_escaped: false, needs_key: false,
        listings: Listing::ALL,
    },
    /// Arctic Shift, an archive of Reddit.
    ArcticShift = "arctic-shift" {
        title: "Arctic Shift", section: "arctic_shift", is_live: false, is_escaped: true, needs_key: false,
        listings: &[Listing::New],
    },
    /// A file passed to `import`.
    Import = "import" {
        title: "a file", section: "collect", is_live: false, is_escaped: true, needs_key: false,
        listings: &[],
    },
}

impl SourceKind {
    /// Parses the name of a source that can be read, which files cannot.
    ///
    /// # Errors
    /// Returns [`UnknownVariant`] with the known names.
    pub fn parse_collectable(text: &str) -> Result<Self, UnknownVariant> {
        let is_collectable = |kind: &Self| !kind.traits().listings.is_empty();
        let kind = text.parse().ok().filter(is_collectable);
        kind.ok_or_else(|| UnknownVariant {
            found: text.to_owned(),
            expected: &["reddit", "arctic-shift", "sample"],
        })
    }

    /// Returns true if its posts are on Reddit now; see [`SourceTraits::is_live`].
    pub const fn is_live(self) -> bool {
        self.traits().is_live
    }

    /// Returns the preferred listing if the source supports it, otherwise the first supported one.
    pub fn listing(self, preferred: Listing) -> Listing {
        let listings = self.traits().listings;
        match listings.first() {
            Some(first) if !listings.contains(&preferred) => *first,
            _ => preferred,
        }
    }
}
