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
        // Symbols that may distinguish two labels, as in C, C++ and C#.
        let sign = match c {
            '&' => Some("and"),
            '+' => Some("plus"),
            '#' => Some("sharp"),
            '%' => Some("percent"),
            _ => None,
        };
        if let Some(sign) = sign {
            words.extend([sign.to_owned(), String::new()]);
        } else if separates(c) {
            words.push(String::new());
        } else if !matches!(c, '\'' | '’') {
            let word = words.last_mut().expect("`words` is never empty");
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.join("-")
}

/// Returns true for white space and punctuation. Everything else belongs to a word: accents, vowel signs, emoji.
fn separates(c: char) -> bool {
    match c {
        '\'' | '’' => false,
        // Spanish and French punctuation, general punctuation, and CJK punctuation.
        '\u{a1}'
        | '\u{ab}'
        | '\u{b7}'
        | '\u{bb}'
        | '\u{bf}'
        | '\u{2000}'..='\u{200b}'
        | '\u{2010}'..='\u{206f}'
        | '\u{3000}'..='\u{303f}' => true,
        c => c.is_whitespace() || c.is_control() || c.is_ascii_punctuation(),
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
