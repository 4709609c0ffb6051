//! Fewer digits than a graph has: ways in which OpenVINO computes a graph in float32 faster.
//!
//! Each is a precision of its own, with a name that somebody may ask for, and other scores.

use std::fmt;

/// How numbers are rounded while a graph in float32 is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// Not at all.
    #[default]
    Exact,
    /// All to bfloat16, which has a mantissa of 8 bits.
    Bf16,
    /// The inputs of products with weights in int8 to int8: so many numbers of a token share a scale.
    Int8 {
        /// How many.
        group: u16,
    },
}

impl Rounding {
    /// The group that stays near to float32, which `int8` alone means, and the one that is faster.
    pub const GROUPS: [u16; 2] = [32, 128];

    /// Every way to round, from the closest to the fastest.
    pub fn ways() -> impl Iterator<Item = Self> {
        let groups = Self::GROUPS.into_iter().map(|group| Self::Int8 { group });
        std::iter::once(Self::Bf16).chain(groups)
    }

    /// The way that a precision is the name of. `int8` is one where a folder has no graph in int8.
    pub fn named(precision: &str) -> Option<Self> {
        let [group, _] = Self::GROUPS;
        let int8 = (precision == "int8").then_some(Self::Int8 { group });
        int8.or_else(|| Self::ways().find(|way| way.to_string() == precision))
    }

    /// Whether nothing is rounded.
    pub fn is_exact(self) -> bool {
        self == Self::Exact
    }

    /// Whether all numbers are rounded to bfloat16.
    pub fn is_bf16(self) -> bool {
        self == Self::Bf16
    }

    /// How many numbers share a scale in int8; `None` where nothing is rounded to int8.
    pub fn group(self) -> Option<u16> {
        match self {
            Self::Exact | Self::Bf16 => None,
            Self::Int8 { group } => Some(group),
        }
    }
}

/// The name of the precision.
impl fmt::Display for Rounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("fp32"),
            Self::Bf16 => f.write_str("bf16"),
            Self::Int8 { group } => write!(f, "int8-g{group}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_name_of_its_own() {
        let names: Vec<String> = Rounding::ways().map(|way| way.to_string()).collect();
        assert_eq!(names, ["bf16", "int8-g32", "int8-g128"]);
        for way in Rounding::ways() {
            assert_eq!(Rounding::named(&way.to_string()), Some(way));
        }
        assert_eq!(Rounding::named("int8"), Some(Rounding::Int8 { group: 32 }));
        for other in ["fp32", "int8-g64", "int8-g", "INT8-G32", ""] {
            assert_eq!(Rounding::named(other), None, "{other}");
        }
    }
}
