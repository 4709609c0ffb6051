//! Declares enums whose variants are spelled the same in the database, the configuration and JSON.

/// Declares an enum with `ALL`, `as_str`, `Display`, `FromStr` and serde, all with the same spelling.
#[macro_export]
macro_rules! string_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// All variants, in declaration order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // `write_str` would ignore a width such as `{:<10}`.
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownVariant;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownVariant> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text).ok_or_else(|| $crate::UnknownVariant {
                    found: text.to_owned(),
                    expected: &[$($word),+],
                })
            }
        }
    };
}

/// An error for text that is not a variant of the enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not one of {}", expected.join(", "))]
pub struct UnknownVariant {
    /// The text.
    pub found: String,
    /// The spellings of all variants.
    pub expected: &'static [&'static str],
}
