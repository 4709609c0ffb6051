//! Describes a remote site.

/// A remote site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Display name: `Arctic Shift`.
    pub name: &'static str,
    /// Section in the settings: `arctic_shift`.
    pub section: &'static str,
    /// True to send requests evenly spaced, without bursts.
    pub evenly_spaced: bool,
}
