//! The text of a Reddit post as its readers see it.
//!
//! Reddit stores posts in Markdown. Its editor adds zero-width characters, escapes and addresses of pictures, and a
//! removed text is replaced by a placeholder. Readers see none of that, and it changes labels, so models do not read it.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// Version of the rule that [`reddit_text`] and [`post_text`] follow: another one wherever the result for any text changes.
pub const TEXT_RULE: u32 = 1;

/// Addresses that Reddit shows as a picture or a video.
const MEDIA: &str = r"https?://(?:(?:preview|external-preview|i|v)\.redd\.it|(?:www\.)?reddit\.com/link/\w+/video)/";

/// Patterns in the order in which they are replaced: a character that each match contains, the pattern, and what is left.
///
/// The address of a link stays, although readers do not see it: without it, three of 960 posts lose the right label, and
/// none gains it (benches/results/text.md).
static MARKUP: LazyLock<Vec<(char, Regex, &str)>> = LazyLock::new(|| {
    let rows: [(char, &str, &str); 15] = [
        // A picture, a GIF or an emote within the text. Readers see its title.
        ('!', r#"!\[[^\]\n]*\]\([^)\s]*(?:\s+"([^"\n]*)")?\)"#, "$1"),
        (
            '[',
            &format!(r"\[(?:{MEDIA}[^\]\s]*|([^\]\n]*))\]\({MEDIA}[^)\s]*\)"),
            "$1",
        ),
        (':', &format!(r"{MEDIA}[^\s)\]]*"), ""),
        (
            '[',
            r#"(^|[^\\])\[([^\[\]\n]*)\]\(((?:[^()\s]|\([^()\s]*\))+)(?:\s+"[^"\n]*")?\)"#,
            "$1$2 $3",
        ),
        ('>', r">!([^\n]+?)!<", "$1"),
        ('>', r"(?m)^[ \t]*(?:>[ \t]?)+", ""),
        ('#', r"(?m)^[ \t]*#{1,6}[ \t]+", ""),
        // Rulers, and the line below the head of a table.
        (
            '-',
            r"(?m)^[ \t]*(?:(?:-[ \t]*){3,}|(?:\|?[ \t]*:?-+:?[ \t]*\|[ \t:-]*)+)$",
            "",
        ),
        ('`', r"(?m)^[ \t]*```\w*[ \t]*$", ""),
        ('`', r"`([^`\n]+)`", "$1"),
        (
            '*',
            r"(^|[^\w*\\])\*{1,3}([^*\s\\]|[^*\s][^*\n]*[^*\s\\])\*{1,3}",
            "$1$2",
        ),
        (
            '_',
            r"(^|[^\w\\])_{1,3}([^_\s\\]|[^_\s][^_\n]*[^_\s\\])_{1,3}\b{end}",
            "$1$2",
        ),
        ('~', r"~~([^~\n]+)~~", "$1"),
        // What the editor writes for a blank paragraph, escaped once more by the API.
        ('&', r"(?i)&amp;#(?:x200b|8203);", ""),
        ('\\', r"\\([!-/:-@\[-`{-~])", "$1"),
    ];
    let compiled = |(sign, pattern, left): (_, &str, _)| (sign, regex(pattern), left);
    rows.map(compiled).into()
});

/// Characters without a width, and those that only turn the direction of a text. A joiner within a word or an emoji is
/// part of it.
static INVISIBLE: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"[\u{AD}\u{180E}\u{200B}\u{200E}\u{200F}\u{202A}-\u{202E}\u{2060}-\u{2069}\u{FEFF}]|(^|\s)[\u{200C}\u{200D}]+",
    )
});

static BLANK_LINES: LazyLock<Regex> = LazyLock::new(|| regex(r"\s*\n\s*\n\s*"));

/// What Reddit, its moderators and its archives put in the place of a removed text.
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi) ^ \W* \[ \s* (?:(?:post|comment|content|title|text|submission)\s+)? (?:removed|deleted|unavailable)
        (?: \s+ (?: by \s+ (?:(?:an?|the|its|original|subreddit|r/\w+)\s+)*
                (?:users?|authors?|op|poster|owner|reddit|mods?|moderators?|moderation|admins?|administrators?
                  |auto-?\s?mod(?:erator)?|anti-evil\s+operations)\b
              | too\s+quickly | too\s+long | on\s+account | in\s+response | for\s+violating | due\s+to )
            (?:[^\[\]] | \[[^\[\]]*\])* )?
        \W* \] \W* $",
    )
});

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns of this file are valid")
}

/// Returns the text of a post that models read: its title, and where it has a body, a blank line and the body, both as
/// [`reddit_text`] returns them. It is empty where both are placeholders.
///
/// ```
/// use topicmill_score::reddit::post_text;
///
/// assert_eq!(post_text("Rye bread", "My *starter* died."), "Rye bread\n\nMy starter died.");
/// assert_eq!(post_text("Rye bread", "[removed]"), "Rye bread");
/// assert_eq!(post_text("[deleted by user]", "[removed]"), "");
/// ```
pub fn post_text(title: &str, body: &str) -> String {
    joined([reddit_text(title), reddit_text(body)].iter())
}

/// Joins the parts of a text with blank lines, without those that are empty or placeholders.
pub fn joined(parts: impl Iterator<Item = impl AsRef<str>>) -> String {
    let mut whole = String::new();
    for part in parts {
        let part = part.as_ref().trim();
        if part.is_empty() || is_placeholder(part) {
            continue;
        }
        if !whole.is_empty() {
            whole.push_str("\n\n");
        }
        whole.push_str(part);
    }
    whole
}

/// Returns a title or a body as readers of Reddit see it: without zero-width characters, escapes, pictures and the signs of
/// Markdown. A placeholder stays.
///
/// ```
/// use topicmill_score::reddit::reddit_text;
///
/// let body = "&#x200B;\n\nhttps://preview.redd.it/a1.png?width=640\n\n# Day 3\n\nIt \\*still\\* **smells**.";
/// assert_eq!(reddit_text(body), "Day 3\n\nIt *still* smells.");
/// ```
pub fn reddit_text(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for (sign, pattern, left) in &*MARKUP {
        if text.contains(*sign) {
            replace(&mut text, pattern, left);
        }
    }
    if let Cow::Owned(decoded) = unescaped(&text) {
        text = Cow::Owned(decoded);
    }
    if !text.is_ascii() {
        replace(&mut text, &INVISIBLE, "$1");
    }
    if text.contains('\n') {
        replace(&mut text, &BLANK_LINES, "\n\n");
    }
    text
}

fn replace(text: &mut Cow<'_, str>, pattern: &Regex, left: &str) {
    if let Cow::Owned(changed) = pattern.replace_all(text, left) {
        *text = Cow::Owned(changed);
    }
}

/// Returns true for a text that only says that a text was removed, such as `[deleted by user]`.
pub fn is_placeholder(text: &str) -> bool {
    // The longest known ones have some 100 characters.
    text.len() < 400 && text.contains('[') && PLACEHOLDER.is_match(text)
}

/// Returns a text with each character reference of HTML decoded once: `&amp;` becomes `&`, and `&amp;lt;` becomes `&lt;`.
/// What only looks like one stays.
///
/// ```
/// use topicmill_score::reddit::unescaped;
///
/// assert_eq!(unescaped("Q&amp;A, &copy=1 &amp;lt;"), "Q&A, &copy=1 &lt;");
/// ```
pub fn unescaped(text: &str) -> Cow<'_, str> {
    if text.contains('&') {
        html_escape::decode_html_entities(text)
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_do_not_see_is_left_out() {
        for (given, seen) in [
            ("plain 2*3*4 and 5 * 6 * 7, snake_case_name, a\\b", None),
            ("C:\\new and #tag, 10 > 9, a - b, x|y", None),
            (
                "ser\u{200b}vers and \u{feff}\u{202e}marks",
                Some("servers and marks"),
            ),
            ("👩\u{200d}🔬 works", None),
            (
                "[a guide](https://a.example/x_(y)) here",
                Some("a guide https://a.example/x_(y) here"),
            ),
            (
                "![img](emote|t5_2th52|4271)yes![gif](giphy|abc)",
                Some("yes"),
            ),
            ("![img](abc \"my loaf\")", Some("my loaf")),
            (
                "[my loaf](https://preview.redd.it/x.jpg?s=1)",
                Some("my loaf"),
            ),
            (
                "[https://i.redd.it/x.jpg](https://i.redd.it/x.jpg)",
                Some(""),
            ),
            (
                "https://reddit.com/link/1abc/video/x9/player\n\nlook",
                Some("\n\nlook"),
            ),
            ("see https://a.example/b_c_d.html", None),
            ("\\[not a link\\](x) \\_ok\\_", Some("[not a link](x) _ok_")),
            (
                "> quoted\n>> twice\n\n***both*** and __bold__ and ~~gone~~",
                Some("quoted\ntwice\n\nboth and bold and gone"),
            ),
            (">!he dies!< in `chapter 3`", Some("he dies in chapter 3")),
            (
                "## Head\n\n---\n\n- item\n- item",
                Some("Head\n\n- item\n- item"),
            ),
            ("|a|b|\n|:-|-:|\n|1|2|", Some("|a|b|\n\n|1|2|")),
            ("salt &amp; oil&nbsp;&#x200B;", Some("salt & oil\u{a0}")),
        ] {
            assert_eq!(reddit_text(given), seen.unwrap_or(given));
        }
    }

    #[test]
    fn the_same_text_with_marks_of_the_editor_is_the_same_text() {
        let plain = post_text("My loaf", "First paragraph.\n\nSecond one.");
        for body in [
            "&#x200B;\n\nFirst paragraph.\n\nSecond one.",
            "First paragraph.\n\n&amp;#x200B;\n\nSecond one.\n\n\u{200b}"
                .replace("&amp;", "&")
                .as_str(),
            "https://preview.redd.it/ab12.jpg?width=1080&format=pjpg&auto=webp&s=0a\n\nFirst paragraph.\n\nSecond one.",
            "First paragraph.\n\n![img](ab12)\n\n\n\nSecond one\\.",
        ] {
            assert_eq!(post_text("My loaf", body), plain);
        }
    }

    #[test]
    fn placeholders_are_known_in_all_their_forms() {
        for text in [
            "[removed]",
            "[deleted]",
            " [REMOVED] ",
            "[deleted by user]",
            "[removed by moderator]",
            "**[Deleted]**",
            "\\[removed\\]",
            "[ Removed by Reddit ]",
            "[Removed by Reddit]",
            "[unavailable]",
            "[removed by mod]",
            "[Removed by AutoModerator]",
            "[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]",
            "[ Removed by reddit in response to a copyright notice. ]",
            "[removed too quickly to be archived]",
            "[deleted by the author]",
            "[ Removed by Anti-Evil Operations ]",
            "\u{200b}[removed]",
            "[Post removed by r/food moderators]",
        ] {
            assert!(is_placeholder(text), "{text}");
            assert_eq!(post_text(text, text), "", "{text}");
        }
        for text in [
            "",
            "removed",
            "[OC] My loaf",
            "[removed] but why?",
            "Why was it [removed]",
            "[deleted scenes]",
            "[removed from the oven]",
            "[deleted by user] what happened to his recipes [serious]",
            "[Deleted by accident]",
        ] {
            assert!(!is_placeholder(text), "{text}");
        }
    }
}
