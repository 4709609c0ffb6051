//! Converts a Reddit post to the text that readers see.
//!
//! Reddit stores posts in Markdown. Its editor adds zero-width characters, escapes and image URLs, which readers do not
//! see. Placeholders replace removed text and carry no information. Both would change labels, so both are removed.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;

use crate::Fullname;

/// Version of the rule behind [`reddit_text`] and [`post_text`], incremented with every change in their results.
pub static TEXT_RULE: LazyLock<u32> = LazyLock::new(|| RULE.version);

/// Number of bytes from which a text is no placeholder. The longest known ones have about 100 characters.
const MAX_PLACEHOLDER: usize = 400;

/// The rule in `reddit_text.toml`.
struct Rule {
    version: u32,
    placeholder: Regex,
    quote: Regex,
    bot: Regex,
    invisible: Regex,
    blank_lines: Regex,
    markup: Vec<Markup>,
}

/// Markup that is replaced.
struct Markup {
    /// A character that every match contains.
    sign: char,
    pattern: Regex,
    replacement: String,
}

/// The content of `reddit_text.toml`.
#[derive(Deserialize)]
struct RuleFile {
    version: u32,
    placeholder: String,
    quote: String,
    bot: String,
    invisible: String,
    markup: Vec<(char, String, String)>,
    media: String,
}

static RULE: LazyLock<Rule> = LazyLock::new(|| {
    let file: RuleFile =
        toml::from_str(include_str!("reddit_text.toml")).expect("reddit_text.toml is valid");
    let regex = |pattern: &str| Regex::new(pattern).expect("reddit_text.toml has valid patterns");
    let markup = |(sign, pattern, replacement): (char, String, String)| Markup {
        sign,
        pattern: regex(&pattern.replace("MEDIA", &file.media)),
        replacement,
    };
    Rule {
        version: file.version,
        placeholder: regex(&file.placeholder),
        quote: regex(&file.quote),
        bot: regex(&file.bot),
        invisible: regex(&file.invisible),
        blank_lines: regex(r"\s*\n\s*\n\s*"),
        markup: file.markup.into_iter().map(markup).collect(),
    }
});

/// Returns a post's text for models: the title and the body, separated by a blank line, each as returned by
/// [`reddit_text`]. Placeholders are left out, so the text may be empty.
///
/// ```
/// use topicmill_core::reddit::post_text;
///
/// assert_eq!(post_text("Rye bread", "My *starter* died."), "Rye bread\n\nMy starter died.");
/// assert_eq!(post_text("Rye bread", "[removed]"), "Rye bread");
/// assert_eq!(post_text("[deleted by user]", "[removed]"), "");
/// ```
pub fn post_text(title: &str, body: &str) -> String {
    join_parts([reddit_text(title), reddit_text(body)].iter())
}

/// Returns the text of a post or a comment for models: that of a post as in [`post_text`], that of a comment without
/// the quoted lines. A comment that is a placeholder or a bot's signature has no text, even with the title of its post.
///
/// ```
/// use topicmill_core::reddit::thing_text;
///
/// let comment = "t1_abc".parse().unwrap();
/// assert_eq!(thing_text(&comment, "", "> Rye or wheat?\n\nRye, **always**."), "Rye, always.");
/// assert_eq!(thing_text(&comment, "", "> Rye or wheat?"), "");
/// ```
pub fn thing_text(fullname: &Fullname, title: &str, body: &str) -> String {
    if !fullname.is_comment() {
        return post_text(title, body);
    }
    let mut own = Cow::Borrowed(body);
    if own.contains('>') {
        replace(&mut own, &RULE.quote, "");
    }
    let text = reddit_text(&own);
    if text.is_empty() || is_placeholder(&text) || RULE.bot.is_match(&text) {
        return String::new();
    }
    join_parts([reddit_text(title), text].iter())
}

/// Joins the parts of a text with blank lines; leaves out empty parts and placeholders.
pub fn join_parts(parts: impl Iterator<Item = impl AsRef<str>>) -> String {
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

/// Returns a title or body without zero-width characters, escapes, images and most Markdown syntax. Links, list markers
/// and placeholders are kept.
///
/// ```
/// use topicmill_core::reddit::reddit_text;
///
/// let body = "&#x200B;\n\nhttps://preview.redd.it/a1.png?width=640\n\n# Day 3\n\nIt \\*still\\* **smells**.";
/// assert_eq!(reddit_text(body), "Day 3\n\nIt *still* smells.");
/// ```
pub fn reddit_text(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for markup in &RULE.markup {
        if text.contains(markup.sign) {
            replace(&mut text, &markup.pattern, &markup.replacement);
        }
    }
    if let Cow::Owned(decoded) = decode_entities(&text) {
        text = Cow::Owned(decoded);
    }
    if !text.is_ascii() {
        replace(&mut text, &RULE.invisible, "$1");
    }
    if text.contains('\n') {
        replace(&mut text, &RULE.blank_lines, "\n\n");
    }
    match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    }
}

/// Replaces all matches; copies the text only if there are any.
fn replace(text: &mut Cow<'_, str>, pattern: &Regex, replacement: &str) {
    if let Cow::Owned(changed) = pattern.replace_all(text, replacement) {
        *text = Cow::Owned(changed);
    }
}

/// Returns true if the text is a placeholder for removed text, such as `[deleted by user]`.
pub fn is_placeholder(text: &str) -> bool {
    text.len() < MAX_PLACEHOLDER && text.contains('[') && RULE.placeholder.is_match(text)
}

/// Decodes HTML character references once: `&amp;` becomes `&`, and `&amp;lt;` becomes `&lt;`. Other text with an
/// ampersand is unchanged.
///
/// ```
/// use topicmill_core::reddit::decode_entities;
///
/// assert_eq!(decode_entities("Q&amp;A, &copy=1 &amp;lt;"), "Q&A, &copy=1 &lt;");
/// ```
pub fn decode_entities(text: &str) -> Cow<'_, str> {
    if text.contains('&') {
        html_escape::decode_html_entities(text)
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn invisible_markup_is_removed() {
        for (given, seen) in table! {
            "plain 2*3*4 and 5 * 6 * 7, snake_case_name, a\\b", None;
            "C:\\new and #tag, 10 > 9, a - b, x|y", None;
            "ser\u{200b}vers and \u{feff}\u{202e}marks", Some("servers and marks");
            "👩\u{200d}🔬 works", None;
            "[a guide](https://a.example/x_(y)) here", None;
            "![img](emote|t5_2th52|4271)yes![gif](giphy|abc)", Some("yes");
            "![img](abc \"my loaf\")", Some("my loaf");
            "[my loaf](https://preview.redd.it/x.jpg?s=1)", Some("my loaf");
            "[https://i.redd.it/x.jpg](https://i.redd.it/x.jpg)", Some("");
            "https://reddit.com/link/1abc/video/x9/player\n\nlook", Some("look");
            "see https://a.example/b_c_d.html", None;
            "\\[not a link\\](x) \\_ok\\_", Some("[not a link](x) _ok_");
            "> quoted\n>> twice\n\n***both*** and __bold__ and ~~gone~~",
                Some("quoted\ntwice\n\nboth and bold and gone");
            ">!he dies!< in `chapter 3`", Some("he dies in chapter 3");
            "## Head\n\n---\n\n- item\n- item", Some("Head\n\n- item\n- item");
            "|a|b|\n|:-|-:|\n|1|2|", Some("|a|b|\n\n|1|2|");
            "salt &amp; oil&nbsp;&#x200B;", Some("salt & oil");
        } {
            assert_eq!(reddit_text(given), seen.unwrap_or(given));
        }
    }

    #[test]
    fn a_comment_is_read_without_quotes_and_bot_signatures() {
        let comment: Fullname = "t1_a".parse().unwrap();
        for (body, text) in [
            ("&gt; quoted\n\nMine", "> quoted\n\nMine"),
            ("> quoted\n>> twice\n>\n\nMine > yours", "Mine > yours"),
            (">!he dies!< really", "he dies really"),
            ("[removed]", ""),
            (" > all quoted", ""),
            (
                "*I am a bot, and this action was performed automatically. Please [contact the \
                 moderators](/message/compose/?to=/r/food) if you have questions.*",
                "",
            ),
            ("I'm a bot, this action was performed automatically", ""),
            (
                "Removed: no recipe.\n\n*I am a bot, and this action was performed automatically.*",
                "Removed: no recipe.\n\nI am a bot, and this action was performed automatically.",
            ),
        ] {
            assert_eq!(thing_text(&comment, "", body), text, "{body}");
            let with_title = join_parts(["Rye", text].iter().filter(|_| !text.is_empty()));
            assert_eq!(thing_text(&comment, "Rye", body), with_title, "{body}");
            let post: Fullname = "a".parse().unwrap();
            assert_eq!(thing_text(&post, "", body), post_text("", body));
        }
    }

    #[test]
    fn editor_artifacts_do_not_change_the_text() {
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
    fn all_known_placeholders_are_recognised() {
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
