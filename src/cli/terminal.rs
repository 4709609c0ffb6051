//! What a terminal has room for: its width, how wide a text stands on it, and bars.
//!
//! What enters are texts that others wrote, made harmless before, and shares. What leaves fits. Away from a terminal,
//! in a pipe or a file, nothing is cut here or anywhere.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Columns that terminals have by default, and what text is made for where there is none.
pub const DEFAULT_WIDTH: usize = 80;

/// Marks that may stand on one letter. The longest in use, a family of emoji with skin tones, has eleven
/// (<https://unicode.org/emoji/charts/emoji-zwj-sequences.html>); hundreds of them paint over the lines around.
const MOST_CHARS: usize = 16;

/// How wide the terminal is that stdout goes to; `None` where it goes into a pipe or a file.
pub fn width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    // A terminal that nobody told its size has none.
    #[cfg(unix)]
    let told = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    #[cfg(not(unix))]
    let told = 0;
    Some(if told == 0 {
        DEFAULT_WIDTH
    } else {
        usize::from(told)
    })
}

/// Columns that a text takes: two for CJK and emoji, none for combining marks.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// A text that takes no more columns than there is room for. What is left out ends in an ellipsis.
pub fn cut(text: &str, room: usize) -> Cow<'_, str> {
    // A letter is no wider than it has bytes.
    if text.len() <= room {
        return Cow::Borrowed(text);
    }
    let (mut head, mut taken, mut heaped) = (String::new(), 0, false);
    // Where the text would end if an ellipsis had to follow.
    let mut end = 0;
    for letter in text.graphemes(true) {
        let wide = letter.width();
        if taken + wide > room {
            head.truncate(end);
            head.truncate(head.trim_end().len());
            head.push('…');
            return Cow::Owned(head);
        }
        taken += wide;
        if letter.len() > MOST_CHARS && letter.chars().count() > MOST_CHARS {
            heaped = true;
            head.extend(letter.chars().take(MOST_CHARS));
        } else {
            head.push_str(letter);
        }
        if taken < room {
            end = head.len();
        }
    }
    if heaped {
        Cow::Owned(head)
    } else {
        Cow::Borrowed(text)
    }
}

/// How wide each column of a table may be, so that all of them take no more than `room`; `None` if they would become
/// too narrow to be read. The widest give first; none gives more than it must keep.
///
/// `columns`: what each takes, and what it must keep.
pub fn fit_widths(columns: &[(usize, usize)], room: usize) -> Option<Vec<usize>> {
    let at = |most: usize| {
        columns
            .iter()
            .map(move |(wide, keep)| (*wide).min(most.max(*keep)))
    };
    if at(0).sum::<usize>() > room {
        return None;
    }
    // By halves, because one text may be a million columns wide.
    let (mut fits, mut too_much) = (0, columns.iter().map(|(wide, _)| *wide).max()? + 1);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if at(middle).sum::<usize>() <= room {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    Some(at(fits).collect())
}

/// A share of 0 to 1 as a bar of up to `room` columns, to an eighth of a column.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a bar is as wide as a terminal"
)]
pub fn bar(share: f64, room: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_nan() { 0.0 } else { share };
    let share = share.clamp(0.0, 1.0);
    let eighths = (share * room as f64 * 8.0).round() as usize;
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_the_columns_that_it_takes() {
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
    fn a_letter_loses_the_marks_that_would_paint_over_its_neighbours() {
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
    fn the_widest_columns_give_first_and_none_more_than_it_can() {
        assert_eq!(fit_widths(&[(5, 5), (9, 9)], 14), Some(vec![5, 9]));
        assert_eq!(
            fit_widths(&[(8, 8), (500, 12), (30, 12)], 58),
            Some(vec![8, 25, 25])
        );
        assert_eq!(
            fit_widths(&[(8, 8), (500, 12), (20, 12)], 58),
            Some(vec![8, 30, 20])
        );
        assert_eq!(fit_widths(&[(8, 8), (500, 12), (30, 12)], 31), None);
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(0.5, 10), "█████");
        assert_eq!(bar(0.55, 10), "█████▌");
        assert_eq!(bar(2.0, 4), "████");
        assert_eq!(bar(0.0, 10) + bar(f64::NAN, 4).as_str(), "");
    }
}
