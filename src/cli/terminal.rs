//! Terminal layout: the width of the terminal and of text, truncation and wrapping.
//!
//! Text must not contain control characters (see `telemetry::sanitize`). In a pipe or a file, nothing is truncated.

use std::io::{self, IsTerminal};

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The width of a terminal that does not report one; also the width of text for a pipe or a file.
pub const DEFAULT_WIDTH: usize = 80;

/// The maximum number of characters in a grapheme; more are cut, because hundreds of combining marks would overlap
/// other lines. The longest grapheme in use, a family emoji with skin tones, has eleven
/// (<https://unicode.org/emoji/charts/emoji-zwj-sequences.html>).
const MOST_CHARS: usize = 16;

/// Returns the terminal width of stdout, or `None` for a pipe or a file.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    // The size is 0 if the terminal does not report one.
    let reported = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    Some(if reported == 0 {
        DEFAULT_WIDTH
    } else {
        usize::from(reported)
    })
}

/// Returns the width of a string, in columns: two for CJK characters and emoji, none for combining marks.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// Truncates a string to `room` columns, with an ellipsis if something was cut. Also cuts excess characters of a
/// grapheme.
pub fn cut(text: &str, room: usize) -> String {
    let (mut shown, mut width) = (String::new(), 0);
    // The length at which to cut if an ellipsis must follow.
    let mut end = 0;
    for grapheme in text.graphemes(true) {
        let wide = grapheme.width();
        if width + wide > room {
            shown.truncate(end);
            shown.truncate(shown.trim_end().len());
            shown.push('…');
            return shown;
        }
        width += wide;
        shown.extend(grapheme.chars().take(MOST_CHARS));
        if width < room {
            end = shown.len();
        }
    }
    shown
}

/// Wraps text to 80 columns, or to the terminal's width if that is less.
pub fn wrap(text: &str) -> String {
    let width = width().unwrap_or(DEFAULT_WIDTH).min(DEFAULT_WIDTH);
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = columns(word);
        if column > 0 && column + 1 + length > width {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines.push('\n');
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_by_display_width() {
        for (text, room, expected) in [
            ("short", 5, "short"),
            ("longer", 5, "long…"),
            ("two words", 5, "two…"),
            ("日本語の題名", 7, "日本語…"),
            ("日本語の題名", 6, "日本…"),
            ("日本語の題名", 12, "日本語の題名"),
            ("e\u{301}te\u{301} en France", 4, "e\u{301}te\u{301}…"),
            ("👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 5, "👩‍👩‍👧‍👦👩‍👩‍👧‍👦…"),
            ("שלום עולם", 5, "שלום…"),
            ("abc", 1, "…"),
        ] {
            let text = cut(text, room);
            assert_eq!(text, expected);
            assert!(columns(&text) <= room, "{text}");
        }
    }

    #[test]
    fn excess_combining_marks_are_removed() {
        let heap = format!("Z{}algo and a long title", "\u{336}".repeat(4_000));
        let text = cut(&heap, 80);
        assert_eq!(
            text.chars().filter(|c| *c == '\u{336}').count(),
            MOST_CHARS - 1
        );
        assert!(text.ends_with("algo and a long title"), "{text}");
        assert!(columns(&cut(&heap, 10)) <= 10);
    }

    #[test]
    fn long_text_is_wrapped_between_words() {
        let text = format!("{} {} ende", "a".repeat(40), "b".repeat(39));
        let lines = format!("{} {}\nende\n", "a".repeat(40), "b".repeat(39));
        assert_eq!(wrap(&text), lines);
        assert_eq!(wrap("one  word\n"), "one word\n");
    }
}
