//! Reduced-precision modes in which OpenVINO can run a float32 graph.
//!
//! Each mode is a precision with its own name and its own scores.

use std::fmt;

/// The rounding of numbers while a float32 graph runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rounding {
    /// Nothing is rounded.
    #[default]
    Exact,
    /// All numbers are rounded to bfloat16, which has an 8-bit mantissa.
    Bf16,
    /// Activations are rounded to int8 in products with int8 weights, with one scale per group of a token's numbers.
    Int8 {
        /// Number of numbers that share a scale.
        group: u16,
    },
}

impl Rounding {
    /// Supported group sizes: the most accurate, which is also called `int8`, and the fastest.
    pub const GROUPS: [u16; 2] = [32, 128];

    /// Returns the reduced-precision modes, from the most accurate to the fastest.
    pub fn reduced_modes() -> impl Iterator<Item = Self> {
        let groups = Self::GROUPS.into_iter().map(|group| Self::Int8 { group });
        std::iter::once(Self::Bf16).chain(groups)
    }

    /// Returns the mode with this precision name. `int8` means the most accurate int8 mode; callers use it only if the
    /// folder has no int8 graph.
    pub fn from_name(precision: &str) -> Option<Self> {
        let [group, _] = Self::GROUPS;
        let int8 = (precision == "int8").then_some(Self::Int8 { group });
        int8.or_else(|| Self::reduced_modes().find(|mode| mode.to_string() == precision))
    }

    /// Returns true if nothing is rounded.
    pub fn is_exact(self) -> bool {
        self == Self::Exact
    }

    /// Returns true if all numbers are rounded to bfloat16.
    pub fn is_bf16(self) -> bool {
        self == Self::Bf16
    }

    /// Returns the group size for int8 rounding; `None` if there is no int8 rounding.
    pub fn group(self) -> Option<u16> {
        match self {
            Self::Exact | Self::Bf16 => None,
            Self::Int8 { group } => Some(group),
        }
    }
}

/// Writes the name of the precision.
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
    fn each_mode_has_its_own_name() {
        let names: Vec<String> = Rounding::reduced_modes()
            .map(|mode| mode.to_string())
            .collect();
        assert_eq!(names, ["bf16", "int8-g32", "int8-g128"]);
        for mode in Rounding::reduced_modes() {
            assert_eq!(Rounding::from_name(&mode.to_string()), Some(mode));
        }
        assert_eq!(
            Rounding::from_name("int8"),
            Some(Rounding::Int8 { group: 32 })
        );
        for other in ["fp32", "int8-g64", "int8-g", "INT8-G32", ""] {
            assert_eq!(Rounding::from_name(other), None, "{other}");
        }
    }
}
