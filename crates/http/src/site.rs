//! Describes a remote site.

/// A remote site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Site {
    /// Display name: `Arctic Shift`.
    pub name: &'static str,
    /// Section in the settings: `arctic_shift`.
    pub section: &'static str,
    /// True to send requests one at a time and evenly spaced: none is sent while another is in flight or is waiting to
    /// be retried.
    pub one_at_a_time: bool,
}
