//! How everything that topicmill draws looks: the report, the served pages, the review page and charts in files.
//!
//! What enters are numbers and texts that somebody wrote; what leaves are style sheets and words that are fit to be
//! shown. Templates escape what they are given; what is done here, escaping does not do: a title of 70,000 characters
//! becomes one line, and its combining marks do not climb over its neighbours.

use unicode_width::UnicodeWidthChar;

/// The colours, for light, dark and print.
pub const TOKENS: &str = include_str!("display/tokens.css");

/// What marks in a chart look like.
pub const CHART: &str = include_str!("display/chart.css");

/// The whole style sheet of a page.
pub const STYLE: &str = concat!(
    include_str!("display/tokens.css"),
    include_str!("display/style.css"),
    include_str!("display/chart.css"),
);

/// Combining marks after one letter: Vietnamese and Hebrew use up to three, and more is done to paint over others.
const MARKS: usize = 4;

/// The minus sign, as wide as a plus.
const MINUS: char = '−';

/// A whole number with a comma at each thousand.
pub fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A share, 0 to 1, in percent: with one decimal where a whole number would say too little.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        return "–".into();
    }
    // With a decimal, 9.95 and 99.95 would be shown as 10.0 and 100.0.
    if percent == 0.0 || (9.95..99.45).contains(&percent) || percent >= 99.95 {
        return format!("{percent:.0} %");
    }
    if percent < 0.05 {
        return "< 0.1 %".into();
    }
    format!("{percent:.1} %")
}

/// A change of a share in percentage points, with its sign.
pub fn points(change: f64) -> String {
    let points = (change * 1000.0).round() / 10.0;
    // So that nothing is called `−0.0`.
    if points == 0.0 {
        return "0.0".into();
    }
    let sign = if points < 0.0 { MINUS } else { '+' };
    format!("{sign}{:.1}", points.abs())
}

/// A score, with the two decimals that mean something.
pub fn score(score: f64) -> String {
    format!("{score:.2}")
}

/// A text that somebody wrote as one line of at most `most` characters: nothing in it breaks the line, turns the
/// direction of its neighbours, or piles up marks; what does not fit ends in an ellipsis.
pub fn single_line(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut shown = 0;
    let mut marks = 0;
    for c in text.trim_start().chars() {
        let c = if c.is_whitespace() || c.is_control() {
            ' '
        } else {
            c
        };
        // A control character at the beginning is a blank that was not there to be trimmed.
        if is_direction(c) || (c == ' ' && (out.is_empty() || out.ends_with(' '))) {
            continue;
        }
        if is_zero_width(c) {
            marks += 1;
            if marks > MARKS {
                continue;
            }
        } else {
            marks = 0;
            shown += 1;
        }
        if shown > most {
            // The last letter makes room for the ellipsis, and takes its marks along.
            let kept = out
                .char_indices()
                .rev()
                .find(|(_, c)| !is_zero_width(*c))
                .map_or(0, |(at, _)| at);
            out.truncate(kept);
            out.truncate(out.trim_end().len());
            out.push('…');
            return out;
        }
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out
}

/// A text that somebody wrote, its lines and blanks kept, of at most `most` characters and an ellipsis: as harmless as a
/// [`single_line`].
pub fn multi_line(text: &str, most: usize) -> String {
    let mut marks = 0;
    let mut out = String::new();
    for c in text.chars().take(most).filter(|c| !is_direction(*c)) {
        marks = if is_zero_width(c) && !c.is_control() {
            marks + 1
        } else {
            0
        };
        if marks <= MARKS {
            let stays = !c.is_control() || matches!(c, '\n' | '\t');
            out.push(if stays { c } else { ' ' });
        }
    }
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// Whether a character sets or overrides the direction of text (<https://trojansource.codes>).
fn is_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character takes no room of its own, because it stands over, under or in the one before it, or joins two.
pub fn is_zero_width(c: char) -> bool {
    c.width() == Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
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
    fn what_somebody_wrote_becomes_a_line() {
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
    }

    /// The relative luminance of the Web Content Accessibility Guidelines 2.2.
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
    fn text_has_a_contrast_of_four_and_a_half_in_every_scheme() {
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
            // Of marks that are no text, 3 is asked for.
            let ratio = contrast("quiet", "ground");
            assert!(ratio >= 3.0, "grey marks: {ratio:.2}");
        }
    }
}
