//! Provides style sheets, and formats numbers, untrusted text and links, for the report, the served pages and charts.
//!
//! Templates escape HTML. This module does what escaping does not: it truncates long text, removes control characters,
//! direction overrides and stacks of combining marks, and rejects links that lead elsewhere than they seem to.

use topicmill_core::is_direction_override;
pub use topicmill_core::{counted, thousands};
use unicode_width::UnicodeWidthChar;

/// The colours for light and dark mode and for print.
pub const TOKENS: &str = include_str!("display/tokens.css");

/// The style sheet for charts.
pub const CHART: &str = include_str!("display/chart.css");

/// The complete style sheet for a page.
pub const STYLE: &str = concat!(
    include_str!("display/tokens.css"),
    include_str!("display/style.css"),
    include_str!("display/chart.css"),
);

/// Maximum number of combining marks per letter. Vietnamese and Hebrew use up to three; taller stacks are used to paint
/// over nearby text.
const MARKS: usize = 4;

/// The minus sign, which is as wide as the plus sign.
const MINUS: char = '−';

/// Formats a share from 0 to 1 as a percentage, with one decimal for small or nearly complete shares.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        return "–".into();
    }
    // Shares that would round to 10.0 or 100.0 have no decimal. From 99.45 to 99.95, a decimal prevents "100 %".
    if percent == 0.0 || (9.95..99.45).contains(&percent) || percent >= 99.95 {
        return format!("{percent:.0} %");
    }
    if percent < 0.05 {
        return "< 0.1 %".into();
    }
    format!("{percent:.1} %")
}

/// Formats an interval of shares: `21 to 38 %`.
pub fn interval(low: f64, high: f64) -> String {
    let low = percent(low);
    format!("{} to {}", low.trim_end_matches(" %"), percent(high))
}

/// Formats the change in a share in percentage points, with its sign.
pub fn points(change: f64) -> String {
    let points = (change * 1000.0).round() / 10.0;
    // Avoids `−0.0`.
    if points == 0.0 {
        return "0.0".into();
    }
    let sign = if points < 0.0 { MINUS } else { '+' };
    format!("{sign}{:.1}", points.abs())
}

/// Formats a p-value with three decimals.
pub fn p_value(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".to_owned()
    } else {
        format!("{p:.3}")
    }
}

/// Formats a score with two decimals.
pub fn score(score: f64) -> String {
    format!("{score:.2}")
}

/// Formats untrusted text as one line of at most `most` characters; longer text ends in an ellipsis. Line breaks and
/// control characters become spaces; direction overrides and excess combining marks are removed.
pub fn single_line(text: &str, most: usize) -> String {
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    let mut out = String::new();
    let mut shown = 0;
    for c in without_overlays(text.chars().map(|c| if is_blank(c) { ' ' } else { c })) {
        if c == ' ' && (out.is_empty() || out.ends_with(' ')) {
            continue;
        }
        shown += usize::from(!is_zero_width(c));
        if shown > most {
            // The ellipsis replaces the last letter and its marks.
            let mut letters = out.char_indices().rev();
            let last = letters.find(|(_, c)| !is_zero_width(*c));
            out.truncate(last.map_or(0, |(at, _)| at));
            out.truncate(out.trim_end().len());
            out.push('…');
            return out;
        }
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out
}

/// Formats untrusted text, keeping its line breaks, truncated to `most` characters and sanitised like [`single_line`].
pub fn multi_line(text: &str, most: usize) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => ' ',
        c => c,
    };
    let mut out: String = without_overlays(text.chars().take(most).map(shown)).collect();
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// Removes direction overrides, and the combining marks of a letter beyond the first [`MARKS`].
fn without_overlays(text: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    let mut marks = 0;
    text.filter(|c| !is_direction_override(*c))
        .filter(move |c| {
            marks = if is_zero_width(*c) { marks + 1 } else { 0 };
            marks <= MARKS
        })
}

/// Returns true if a character has no width, such as a combining mark or a joiner.
pub fn is_zero_width(c: char) -> bool {
    c.width() == Some(0)
}

/// Returns the URL of a path on Reddit. Imported paths are untrusted: without a leading slash, `.evil.example/` would
/// lead to a different host.
pub fn reddit_url(path: &str) -> Option<String> {
    (path.starts_with('/') && !path.starts_with("//"))
        .then(|| format!("https://www.reddit.com{path}"))
}

/// Returns true if a URL can be a link; rejects `javascript:` and other schemes.
pub fn is_web_url(url: &str) -> bool {
    url.starts_with("https://") || url.starts_with("http://")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_significant_digits() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(thousands),
            ["0", "999", "1,000", "1,234,567"]
        );
        let shares = [0.0, 0.0001, 0.0149, 0.0994, 0.0996, 0.5, 0.996, 0.9999, 1.0];
        assert_eq!(
            shares.map(percent),
            [
                "0 %", "< 0.1 %", "1.5 %", "9.9 %", "10 %", "50 %", "99.6 %", "100 %", "100 %"
            ]
        );
        assert_eq!(percent(f64::NAN), "–");
        assert_eq!(
            [0.0, 0.0004, -0.0004, 0.025, -0.025].map(points),
            ["0.0", "0.0", "0.0", "+2.5", "−2.5"]
        );
    }

    #[test]
    fn untrusted_text_becomes_a_single_line() {
        assert_eq!(
            single_line("  A\n title\t of\u{0} lines ", 80),
            "A title of lines"
        );
        assert_eq!(
            single_line("\u{202e}evil\u{202c} \u{2066}turn", 80),
            "evil turn"
        );
        assert_eq!(
            single_line(&format!("Z{}go", "\u{301}".repeat(4000)), 80),
            format!("Z{}go", "\u{301}".repeat(4))
        );
        assert_eq!(single_line(&"long ".repeat(14_000), 12), "long long l…");
        assert_eq!(single_line("exactly", 7), "exactly");
        assert_eq!(single_line("e\u{301}a\u{301}b", 2), "e\u{301}…");
        assert_eq!(single_line("", 5), "");
        assert_eq!(single_line("\u{0}\u{1b} after", 80), "after");
        let stack = format!("\u{202e}Z{}\n\u{7}go", "\u{301}".repeat(40));
        assert_eq!(
            multi_line(&stack, 50),
            format!("Z{}\n go", "\u{301}".repeat(4))
        );
        assert_eq!(multi_line("a\nbc", 3), "a\nb…");
    }

    /// Returns the relative luminance, as defined in WCAG 2.2.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap();
            let value = f64::from(value) / 255.0;
            if value <= 0.040_45 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn text_contrast_is_at_least_4_5_in_every_scheme() {
        let schemes: Vec<&str> = TOKENS.split("@media").collect();
        assert_eq!(schemes.len(), 3, "light, dark and print");
        for scheme in schemes {
            let colour = |name: &str| {
                let (_, rest) = scheme.split_once(&format!("--{name}: ")).unwrap();
                luminance(&rest[..7])
            };
            let contrast = |text: &str, ground: &str| {
                let (a, b) = (colour(text), colour(ground));
                (a.max(b) + 0.05) / (a.min(b) + 0.05)
            };
            let grounds = ["ground", "raised", "accent-wash", "warm-wash"];
            let on_grounds = ["ink", "soft", "accent", "warm"]
                .into_iter()
                .flat_map(|text| grounds.map(|ground| (text.to_owned(), ground.to_owned())));
            let on_heat = (0..8).map(|step| {
                let text = if step < 6 { "ink" } else { "ground" };
                (text.to_owned(), format!("h{step}"))
            });
            for (text, ground) in on_grounds
                .chain(on_heat)
                .chain([("ground".into(), "accent".into())])
            {
                let ratio = contrast(&text, &ground);
                assert!(ratio >= 4.5, "{text} on {ground}: {ratio:.2}");
            }
            // Graphics need a contrast of 3.
            let ratio = contrast("quiet", "ground");
            assert!(ratio >= 3.0, "grey marks: {ratio:.2}");
        }
    }
}
