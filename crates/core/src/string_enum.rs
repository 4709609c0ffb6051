//! Words that are written in one spelling everywhere.

/// Declares an enum of words that are written in one spelling everywhere: database, configuration, JSON.
macro_rules! string_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every variant, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The one spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Not `write_str`, which would pass over the width of `{:<10}`.
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownVariant;

            fn from_str(text: &str) -> Result<Self, UnknownVariant> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| UnknownVariant {
                    found: text.to_owned(),
                    expected: &[$($word),+],
                })
            }
        }
    };
}

/// A word that is none of those expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is none of {}", expected.join(", "))]
pub struct UnknownVariant {
    pub(super) found: String,
    pub(super) expected: &'static [&'static str],
}
