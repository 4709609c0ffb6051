//! Sanitises untrusted text for a terminal.
//!
//! Titles, files and server responses may contain anything. The result contains no control characters (escape
//! sequences, C1, BEL, DEL) and no bidirectional overrides (<https://trojansource.codes>).

use std::borrow::Cow;
use std::fmt::Write;

use topicmill_core::is_direction_override;

/// Returns true for control characters and for characters that change the text direction.
fn is_control_character(c: char) -> bool {
    c.is_control() || is_direction_override(c)
}

/// Returns the replacement of a control character: its symbol from U+2400, or U+FFFD.
fn replacement(c: char) -> char {
    match c {
        '\0'..='\u{1f}' => {
            char::from_u32(0x2400 + u32::from(c)).expect("32 pictures follow U+2400")
        }
        '\u{7f}' => '\u{2421}',
        _ => char::REPLACEMENT_CHARACTER,
    }
}

fn sanitized(text: &str, is_kept: fn(char) -> bool) -> Cow<'_, str> {
    let is_replaced = |c: char| is_control_character(c) && !is_kept(c);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let sanitize = |c| if is_replaced(c) { replacement(c) } else { c };
    Cow::Owned(text.chars().map(sanitize).collect())
}

/// Sanitises multi-line text: keeps line breaks and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    sanitized(text, |c| matches!(c, '\n' | '\t'))
}

/// Sanitises text for a single line: keeps tabs only.
pub fn line(text: &str) -> Cow<'_, str> {
    sanitized(text, |c| c == '\t')
}

/// Escapes control characters in JSON. The value does not change.
pub fn json(text: &str) -> Cow<'_, str> {
    // JSON escapes C0 itself, and contains no other control characters outside strings but these three.
    let is_escaped = |c: char| is_control_character(c) && !matches!(c, '\n' | '\t' | '\r');
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String does not fail");
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced_by_symbols() {
        let evil = "a\u{1b}[2J\u{7}\u{7f}\u{9b}31m\u{202e}b\u{2066}\u{200f}\r\0";
        assert_eq!(line(evil), "a␛[2J␇␡\u{fffd}31m\u{fffd}b\u{fffd}\u{fffd}␍␀");
        assert_eq!(lines("a\n\tb"), "a\n\tb");
        assert_eq!(line("a\n\tb"), "a␊\tb");
        let harmless = "Ærø 日本 👩‍🚀 שלום";
        assert!(matches!(line(harmless), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        for code in (0..0x300).chain(0x2000..0x2100) {
            let Some(c) = char::from_u32(code) else {
                continue;
            };
            let value = serde_json::json!({ format!("k{c}"): format!("a{c}b") });
            let text = format!("{value:#}");
            let escaped = json(&text);
            assert_eq!(
                serde_json::from_str::<serde_json::Value>(&escaped).unwrap(),
                value
            );
            assert!(
                !escaped.contains(|c| is_control_character(c) && c != '\n'),
                "{escaped:?}"
            );
        }
    }
}
