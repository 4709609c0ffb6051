//! Parses shares on the command line.

/// Parses a share, from 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let share: Option<f64> = text.parse().ok();
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text} is not a share: use a number from 0 to 1"))
}

/// Parses a share that labels should reach, which is above 0.
pub fn parse_target(text: &str) -> Result<f64, String> {
    let share = parse_share(text).ok().filter(|share| *share > 0.0);
    share.ok_or_else(|| format!("{text} is not a share: use a number above 0 and up to 1"))
}
