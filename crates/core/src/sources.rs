//! The table of sources: one row each, from which all that the program has to know about it follows.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::string_enum::UnknownVariant;

string_enum! {
    /// The order in which Reddit lists a subreddit.
    Listing {
        /// Reddit's default order.
        Hot = "hot",
        /// Newest first.
        New = "new",
        /// Best scores of the day first.
        Top = "top",
        /// Gaining votes now.
        Rising = "rising",
    }
}

/// What the program has to know about a source, apart from how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceTraits {
    /// Its name in messages.
    pub title: &'static str,
    /// Its section of the settings, and the name of its counts in the record of a run.
    pub section: &'static str,
    /// Whether what it shows is on Reddit now. An archive shows what was there once, and a file may be years old.
    pub is_live: bool,
    /// Whether its texts come escaped for HTML, `&amp;` for `&`. Reddit's API does that unless it is asked for
    /// `raw_json=1`, as it is here; archives and files have what others were answered.
    pub is_escaped: bool,
    /// Whether it wants credentials of its user.
    pub needs_key: bool,
    /// The orders in which it can be read; none: nothing is collected from it.
    pub listings: &'static [Listing],
}

/// Declares the sources: the table that all else about them follows from.
macro_rules! sources {
    ($($(#[$meta:meta])* $variant:ident = $word:literal { $($field:ident: $value:expr),+ $(,)? }),+ $(,)?) => {
        string_enum! {
            /// Where a post came from.
            SourceKind { $($(#[$meta])* $variant = $word),+ }
        }

        impl SourceKind {
            /// Its row of the table of sources.
            pub const fn traits(self) -> &'static SourceTraits {
                match self { $(Self::$variant => &SourceTraits { $($field: $value),+ }),+ }
            }
        }
    };
}

sources! {
    /// Reddit's own API.
    Reddit = "reddit" { title: "Reddit", section: "reddit", is_live: true, is_escaped: false, needs_key: true, listings: Listing::ALL },
    /// The sample Reddit that ships with the program.
    Sample = "sample" { title: "Reddit", section: "reddit", is_live: true, is_escaped: false, needs_key: false, listings: Listing::ALL },
    /// Arctic Shift, an archive of Reddit.
    ArcticShift = "arctic-shift" { title: "Arctic Shift", section: "arctic_shift", is_live: false, is_escaped: true, needs_key: false, listings: &[Listing::New] },
    /// A file given to `import`.
    Import = "import" { title: "a file", section: "collect", is_live: false, is_escaped: true, needs_key: false, listings: &[] },
}

impl SourceKind {
    /// Whether what it shows is on Reddit now: see [`SourceTraits::is_live`].
    pub const fn is_live(self) -> bool {
        self.traits().is_live
    }

    /// The order in which it is read where this one is wished for: that one, if it can be.
    pub fn listing(self, wished: Listing) -> Listing {
        let listings = self.traits().listings;
        match listings.first() {
            Some(first) if !listings.contains(&wished) => *first,
            _ => wished,
        }
    }
}
