//! Derives a slug from a label, for topics without one.

/// Returns the slug of a label: its words in lower case, joined by hyphens. The slug of a label that consists of
/// punctuation is empty.
///
/// ```
/// use topicmill_core::slug;
///
/// assert_eq!(slug("Climate change"), "climate-change");
/// assert_eq!(slug("Food & cooking"), "food-and-cooking");
/// assert_eq!(slug("men's health"), "mens-health");
/// ```
pub fn slug(label: &str) -> String {
    let mut words: Vec<String> = vec![String::new()];
    for c in label.chars() {
        match classify(c) {
            Part::Sign(word) => words.extend([word.to_owned(), String::new()]),
            Part::Separator => words.push(String::new()),
            Part::Dropped => {}
            Part::Letter => {
                let word = words.last_mut().expect("`words` is never empty");
                word.extend(c.to_lowercase());
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words.join("-")
}

/// The role of a character in a label.
enum Part {
    /// A symbol that may distinguish two labels, as in C, C++ and C#, with the word for it.
    Sign(&'static str),
    /// White space or punctuation.
    Separator,
    /// An apostrophe.
    Dropped,
    /// Everything else: accents, vowel signs and emoji too.
    Letter,
}

#[expect(clippy::match_same_arms, reason = "an arm names its Unicode block")]
fn classify(c: char) -> Part {
    match c {
        '&' => Part::Sign("and"),
        '+' => Part::Sign("plus"),
        '#' => Part::Sign("sharp"),
        '%' => Part::Sign("percent"),
        // Apostrophes and direction marks.
        '\'' | '’' | '\u{200e}' | '\u{200f}' => Part::Dropped,
        // ¡ « · » ¿ of the block Latin-1 Supplement.
        '\u{a1}' | '\u{ab}' | '\u{b7}' | '\u{bb}' | '\u{bf}' => Part::Separator,
        // General Punctuation, without the joiners U+200C and U+200D inside of words and emoji.
        '\u{2000}'..='\u{200b}' | '\u{2010}'..='\u{206f}' => Part::Separator,
        // CJK Symbols and Punctuation.
        '\u{3000}'..='\u{303f}' => Part::Separator,
        c if c.is_whitespace() || c.is_control() || c.is_ascii_punctuation() => Part::Separator,
        _ => Part::Letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_any_script_have_a_slug() {
        for (label, made) in [
            ("gaming", "gaming"),
            (
                "  Personal   finance/investing ",
                "personal-finance-investing",
            ),
            ("C", "c"),
            ("C++", "c-plus-plus"),
            ("C#", "c-sharp"),
            ("R&D", "r-and-d"),
            ("Städte und Länder", "städte-und-länder"),
            ("气候变化", "气候变化"),
            ("3D printing", "3d-printing"),
            ("🎮", "🎮"),
            ("हिन्दी फ़िल्में", "हिन्दी-फ़िल्में"),
            ("…", ""),
        ] {
            assert_eq!(slug(label), made, "{label}");
        }
    }
}
