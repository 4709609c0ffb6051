//! Draws SVG images. Text is measured with font metrics and truncated to fit. The complete text then goes into a
//! `<title>`, which browsers show as a tooltip.

use std::fmt::Write;

use crate::display;

/// An SVG image under construction.
pub struct Svg {
    /// Width in pixels.
    pub width: f64,
    /// Height in pixels.
    pub height: f64,
    body: String,
}

/// The point in a string that its coordinates refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The left end.
    Start,
    /// The middle.
    Middle,
    /// The right end.
    End,
}

impl Anchor {
    fn class(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::Middle => " mid",
            Self::End => " end",
        }
    }
}

/// Escapes a string for XML and HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML cannot represent these characters.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Returns an upper bound on the width of a string in pixels, at a font size of 12 pixels: the width in `DejaVu Sans`,
/// the widest of the usual system fonts.
pub fn width(text: &str) -> f64 {
    text.chars().map(advance).sum()
}

fn advance(c: char) -> f64 {
    if display::is_zero_width(c) {
        return 0.0;
    }
    match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 4.0,
        'f' | 't' | 'r' | '(' | ')' | '/' | '-' | '[' | ']' | '"' => 5.2,
        'c' | 's' | 'z' | 'J' => 6.8,
        'm' | 'M' | 'W' | '@' | '%' | '&' | '…' | '—' | '→' => 12.1,
        'A'..='Z' | 'w' | '+' | '<' | '>' | '=' | '~' | '−' | '^' | '#' => 10.2,
        c if c.is_ascii() => 7.8,
        // Han, Kana, Hangul, wide forms and emoji.
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{2600}'..='\u{27bf}' => 14.0,
        c if u32::from(c) >= 0x1_0000 => 17.0,
        // Other scripts, some with wide letters, such as Arabic and Indian scripts.
        '\u{600}'..='\u{1fff}' => 13.0,
        _ => 10.5,
    }
}

/// Truncates a string to a width in pixels, with an ellipsis.
pub fn fit(text: &str, room: f64) -> String {
    let text = display::single_line(text, 400);
    if width(&text) <= room {
        return text;
    }
    let mut used = advance('…');
    let mut end = 0;
    for (at, c) in text.char_indices() {
        used += advance(c);
        if used > room {
            break;
        }
        end = at + c.len_utf8();
    }
    format!("{}…", text[..end].trim_end())
}

/// Formats coordinates as the `points` attribute.
fn points<'p>(places: impl IntoIterator<Item = &'p (f64, f64)>) -> String {
    let places = places.into_iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
    places.collect::<Vec<_>>().join(" ")
}

impl Svg {
    /// Creates an empty image.
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        self.body
            .write_fmt(arguments)
            .expect("writing to a string cannot fail");
    }

    /// Adds a rectangle with an optional tooltip.
    pub fn rect(&mut self, at: (f64, f64), size: (f64, f64), class: &str, tooltip: &str) {
        let ((x, y), (width, height)) = (at, size);
        let rect = format!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\""
        );
        if tooltip.is_empty() {
            self.push(format_args!("{rect}/>"));
        } else {
            let tooltip = escape(tooltip);
            self.push(format_args!("{rect}><title>{tooltip}</title></rect>"));
        }
    }

    /// Adds a line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// Adds a circle with a tooltip.
    pub fn dot(&mut self, at: (f64, f64), radius: f64, class: &str, tooltip: &str) {
        let (x, y) = at;
        self.push(format_args!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"><title>{}</title></circle>",
            escape(tooltip)
        ));
    }

    /// Adds a polyline.
    pub fn path(&mut self, places: &[(f64, f64)], class: &str) {
        let points = points(places);
        self.push(format_args!(
            "<polyline class=\"{class}\" points=\"{points}\"/>"
        ));
    }

    /// Adds the filled area between a polyline and a baseline.
    pub fn area(&mut self, places: &[(f64, f64)], ground: f64, class: &str) {
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return;
        };
        let ends = [(last.0, ground), (first.0, ground)];
        let points = points(places.iter().chain(&ends));
        self.push(format_args!(
            "<polygon class=\"{class}\" points=\"{points}\"/>"
        ));
    }

    /// Adds a string, truncated to `room` pixels.
    pub fn text(&mut self, at: (f64, f64), anchor: Anchor, class: &str, text: &str, room: f64) {
        let shown = fit(text, room);
        let whole = display::single_line(text, 400);
        let tooltip = if shown == whole {
            String::new()
        } else {
            format!("<title>{}</title>", escape(&whole))
        };
        self.push(format_args!(
            "<text class=\"{class}{}\" x=\"{:.1}\" y=\"{:.1}\">{tooltip}{}</text>",
            anchor.class(),
            at.0,
            at.1,
            escape(&shown)
        ));
    }

    /// Adds a row's name, right-aligned at the left edge of the plot area.
    pub fn name(&mut self, left: f64, y: f64, text: &str) {
        let end = (left - 10.0, y + 4.0);
        self.text(end, Anchor::End, "name", text, left - 12.0);
    }

    /// Adds a string rotated by 45 degrees.
    pub fn slanted(&mut self, at: (f64, f64), class: &str, text: &str, room: f64) {
        let shown = fit(text, room);
        self.push(format_args!(
            "<text class=\"{class}\" transform=\"translate({:.1},{:.1}) rotate(-45)\"><title>{}</title>{}</text>",
            at.0,
            at.1,
            escape(&display::single_line(text, 400)),
            escape(&shown)
        ));
    }

    /// Returns the image as an element for an HTML page.
    pub fn inline(&self, class: &str, tooltip: &str) -> String {
        format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {w:.0} {h:.0}\" width=\"{w:.0}\" height=\"{h:.0}\" \
             role=\"img\" aria-label=\"{tooltip}\">{body}</svg>",
            w = self.width,
            h = self.height,
            tooltip = escape(&display::single_line(tooltip, 400)),
            body = self.body,
        )
    }

    /// Returns the image as an SVG file with a title and colours.
    pub fn alone(&self, title: &str, explanation: &str) -> String {
        const MARGIN: f64 = 16.0;
        const HEAD: f64 = 30.0;
        let (w, h) = (self.width + 2.0 * MARGIN, self.height + 2.0 * MARGIN + HEAD);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart alone\" viewBox=\"0 0 {w:.0} {h:.0}\" \
             width=\"{w:.0}\" height=\"{h:.0}\" role=\"img\"><!-- {generator} \
             --><title>{title}</title><desc>{explanation}</desc><style>{tokens}{chart}</style><rect class=\"ground\" \
             width=\"{w:.0}\" height=\"{h:.0}\"/><text class=\"strong\" x=\"{MARGIN}\" y=\"{y}\">{shown}</text><g \
             transform=\"translate({MARGIN},{top})\">{body}</g></svg>\n",
            generator = super::GENERATOR,
            title = escape(title),
            explanation = escape(explanation),
            tokens = display::TOKENS,
            chart = display::CHART,
            y = MARGIN + 12.0,
            top = MARGIN + HEAD,
            shown = escape(&fit(title, self.width)),
            body = self.body,
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::display::{is_zero_width, single_line};

    #[test]
    fn long_text_is_truncated_to_fit() {
        assert_eq!(fit("food", 100.0), "food");
        for long in [
            "W".repeat(200),
            "日本語".repeat(60),
            "👩‍🚀".repeat(99),
            "i".repeat(200),
        ] {
            let shown = fit(&long, 80.0);
            assert!(shown.ends_with('…') && width(&shown) <= 80.0, "{shown}");
        }
        assert_eq!(fit("anything", 0.0), "…");
        // The ellipsis is narrower than the last letter.
        assert_eq!(fit("ab料", 28.0), "ab…");
        assert_eq!(fit("料", 3.0), "…");
        // Characters without width do not count.
        let shown = fit("\u{0}<o\u{fffd}\u{fffd}blob", 39.0);
        assert!(width(&shown) <= 39.0, "{shown}");
    }

    #[test]
    fn text_is_escaped() {
        let mut svg = Svg::new(100.0, 20.0);
        let evil = "</text><script>alert(1)</script>\"'&\u{0}\u{ffff}";
        svg.text((0.0, 9.0), Anchor::Start, "name", evil, 30.0);
        svg.rect((0.0, 0.0), (9.0, 9.0), "mark", evil);
        for drawn in [svg.inline("wide", evil), svg.alone(evil, evil)] {
            assert!(!drawn.contains("<script"), "{drawn}");
            assert!(!drawn.contains('\0') && !drawn.contains('\u{ffff}'));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        #[test]
        fn drawn_text_stays_within_its_width_and_is_escaped(
            text in any::<String>(), most in 0..64_usize, room in 0.0..255.0,
        ) {
            let line = single_line(&text, most);
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            prop_assert_eq!(line.trim_matches(' '), &*line);
            prop_assert!(line.chars().filter(|c| !is_zero_width(*c)).count() <= most + 1);
            prop_assert_eq!(single_line(&line, most + 1), &*line);
            // Widths are sums of decimals, whose last bits depend on the order of summation.
            prop_assert!(width(&fit(&text, room)) <= room.max(width("…")) + 1e-9);
            let escaped = escape(&text);
            let is_odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
            let marks = ['<', '>', '"', '\''];
            prop_assert!(!escaped.contains(marks) && !escaped.contains(is_odd));
            let mut back = escaped;
            for (entity, mark) in ["&lt;", "&gt;", "&quot;", "&#39;"].into_iter().zip(marks) {
                back = back.replace(entity, &mark.to_string());
            }
            prop_assert_eq!(back.replace("&amp;", "&"), text.replace(is_odd, " "));
        }
    }
}
