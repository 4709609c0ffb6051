//! Words that stand for a cluster of posts: class-based TF-IDF, as `BERTopic` has it
//! (<https://arxiv.org/abs/2203.05794>): how often a term is in a class, times the logarithm of 1 + A/f, where f is how
//! often it is in all of them and A is the mean size of a class.
//!
//! In go the posts of each class; out come its terms, the best first, of one word or two. A post counts a term once, and
//! once more for its title, so that one long post does not speak for all.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

/// English function words and Reddit's own, with their source.
const STOP_WORDS: &str = include_str!("stop_words.txt");
static STOPPED: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let lines = STOP_WORDS.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).collect()
});

/// Characters of a body that are read: about what the shipped model reads.
const MOST_CHARS: usize = 2_000;
/// Characters of a word; longer ones are no words.
const LONGEST: usize = 30;
/// A term of fewer posts of a class may be one person's.
const FEWEST: usize = 2;
/// And of a smaller share of them: one in so many.
const RAREST: usize = 20;
/// Terms that are kept of a class.
const KEPT: usize = 8;
/// The longest acronym that keeps its capitals.
const ACRONYM: usize = 5;

/// A post's words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub title: &'a str,
    pub body: &'a str,
}

/// How often a term is in a class.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// Posts with it, and titles.
    weight: u32,
    posts: usize,
}

/// How a word is written, counted.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    all: u32,
    upper: u32,
    capital: u32,
}

/// The terms of each class, in order.
pub(super) fn terms(classes: &[Vec<Text<'_>>]) -> Vec<Vec<String>> {
    let mut written: HashMap<String, Written> = HashMap::new();
    let counted: Vec<BTreeMap<String, Count>> = classes
        .iter()
        .map(|texts| counts(texts, &mut written))
        .collect();
    let mut everywhere: HashMap<&str, u32> = HashMap::new();
    for (term, count) in counted.iter().flatten() {
        *everywhere.entry(term).or_default() += count.weight;
    }
    let all: u32 = everywhere.values().sum();
    let mean = f64::from(all) / f64::from(u32::try_from(classes.len().max(1)).unwrap_or(u32::MAX));
    let of = |(texts, counted): (&Vec<Text<'_>>, &BTreeMap<String, Count>)| {
        let size: u32 = counted.values().map(|count| count.weight).sum();
        let fewest = FEWEST.max(texts.len() / RAREST);
        let usual = counted.iter().filter(|(_, count)| count.posts >= fewest);
        let mut scored: Vec<(f64, &str, Count)> = usual
            .map(|(term, count)| {
                let share = f64::from(count.weight) / f64::from(size);
                let rare = (1.0 + mean / f64::from(everywhere[term.as_str()])).ln();
                (share * rare, term.as_str(), *count)
            })
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let kept = tidy(&scored).into_iter().take(KEPT);
        kept.map(|term| spelled(term, &written)).collect()
    };
    classes.iter().zip(&counted).map(of).collect()
}

fn counts(texts: &[Text<'_>], written: &mut HashMap<String, Written>) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for text in texts {
        let end = text.body.char_indices().nth(MOST_CHARS);
        let body = &text.body[..end.map_or(text.body.len(), |(at, _)| at)];
        let of_title = grams(text.title, written);
        let of_body = grams(body, written);
        for term in of_title.union(&of_body) {
            let count = counts.entry(term.clone()).or_default();
            count.posts += 1;
            count.weight += 1 + u32::from(of_title.contains(term));
        }
    }
    counts
}

/// Words and pairs of words that stand side by side, without stop words.
fn grams(text: &str, written: &mut HashMap<String, Written>) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut before: Option<String> = None;
    for piece in text.split_whitespace() {
        let Some(piece) = prose(piece) else {
            before = None;
            continue;
        };
        let mut rest = piece;
        while !rest.is_empty() {
            let (word, after) = next_word(rest);
            rest = after;
            let word = word.trim_matches(['\'', '’', '-']);
            let word = word
                .strip_suffix("'s")
                .or(word.strip_suffix("’s"))
                .unwrap_or(word);
            let lower = word.to_lowercase().replace('’', "'");
            if !is_term(&lower) {
                // What stands between two words parts them, a stop word too.
                before = None;
                continue;
            }
            let seen = written.entry(lower.clone()).or_default();
            seen.all += 1;
            let mut chars = word.chars();
            if chars.next().is_some_and(char::is_uppercase) {
                seen.capital += 1;
                seen.upper += u32::from(!chars.any(char::is_lowercase));
            }
            if let Some(before) = before.replace(lower.clone()) {
                found.insert(format!("{before} {lower}"));
            }
            found.insert(lower);
            // A sign behind the word ends a phrase.
            if !rest.is_empty() || piece.ends_with(|c: char| !c.is_alphanumeric()) {
                before = None;
            }
        }
    }
    found
}

/// What of a piece between blanks is prose: no address, no name of a subreddit or a user.
fn prose(piece: &str) -> Option<&str> {
    // `[text](address)`
    let piece = piece.split_once("](").map_or(piece, |(text, _)| text);
    let plain = piece.trim_start_matches(['(', '[', '<', '*', '/', '"']);
    let lower = plain.get(..4).unwrap_or(plain).to_lowercase();
    let is_name = lower.starts_with("r/") || lower.starts_with("u/") || lower == "www.";
    let is_address = plain.contains("://") || plain.contains('@');
    (!is_name && !is_address).then_some(piece)
}

/// The first word of a piece, and what comes behind the sign after it.
fn next_word(piece: &str) -> (&str, &str) {
    let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '’' | '-'));
    match piece.char_indices().find(|(_, c)| ends(*c)) {
        Some((at, sign)) => (&piece[..at], &piece[at + sign.len_utf8()..]),
        None => (piece, ""),
    }
}

fn is_term(word: &str) -> bool {
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    let length = word.chars().count();
    // A character of Chinese or Japanese is a word of its own; a Latin letter is none.
    let long_enough = length > 1 || word.chars().any(|c| c > '\u{2e80}');
    letters > 0 && long_enough && length <= LONGEST && !STOPPED.contains(word)
}

/// Terms that say something of their own, the best first: a pair of words stands for each of its words where it is half
/// of what they are found in, and else falls behind them; of singular and plural the better one stays.
fn tidy<'t>(scored: &[(f64, &'t str, Count)]) -> Vec<&'t str> {
    let mut kept: Vec<(&str, u32)> = Vec::new();
    for (_, term, count) in scored {
        let stems: Vec<&str> = term.split(' ').map(stem).collect();
        let shares = |other: &str| other.split(' ').any(|word| stems.contains(&stem(word)));
        let mut alike = (0..kept.len()).filter(|at| shares(kept[*at].0));
        let Some(first) = alike.next() else {
            kept.push((term, count.weight));
            continue;
        };
        let (other, weight) = kept[first];
        let replaces = stems.len() > 1 && !other.contains(' ') && 2 * count.weight >= weight;
        if replaces {
            let second = alike.find(|at| !kept[*at].0.contains(' '));
            kept[first] = (term, count.weight);
            second.map(|at| kept.remove(at));
        }
        if kept.len() > 2 * KEPT {
            break;
        }
    }
    kept.into_iter().map(|(term, _)| term).collect()
}

/// A word without the ending of a plural.
fn stem(word: &str) -> &str {
    let short = word.strip_suffix("ies").or(word.strip_suffix('y'));
    let short = short.or(word.strip_suffix('s').filter(|stem| !stem.ends_with('s')));
    short.filter(|stem| stem.len() > 2).unwrap_or(word)
}

/// A term as people write it: names and acronyms keep their capitals.
fn spelled(term: &str, written: &HashMap<String, Written>) -> String {
    let word = |word: &str| {
        let seen = written.get(word).copied().unwrap_or_default();
        let length = word.chars().count();
        if 2 * seen.upper > seen.all && length <= ACRONYM {
            word.to_uppercase()
        } else if 10 * seen.capital >= 9 * seen.all.max(1) && seen.capital > 1 {
            let mut chars = word.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            first.chain(chars).collect()
        } else {
            word.to_owned()
        }
    };
    let words: Vec<String> = term.split(' ').map(word).collect();
    words.join(" ")
}

/// The words of a label that some terms suggest: two of them, or one that is of two words.
pub(super) fn label(terms: &[String]) -> Option<String> {
    /// Longer ones are no label.
    const LONG: usize = 30;
    let first = terms.first()?;
    let joined = terms.get(1).map(|second| format!("{first} and {second}"));
    let joined = joined.filter(|joined| !first.contains(' ') && joined.chars().count() <= LONG);
    Some(joined.unwrap_or_else(|| first.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut found: Vec<String> = grams(text, &mut HashMap::new()).into_iter().collect();
        found.sort();
        found
    }

    #[test]
    fn terms_are_words_and_pairs_without_addresses_names_and_numbers() {
        assert_eq!(
            words("See [my guitar](https://example.com/guitar) and r/guitars, by u/somebody"),
            ["guitar"]
        );
        assert_eq!(
            words("The teacher’s old classroom. Homework 2024 https://example.com/x"),
            ["classroom", "homework", "teacher"]
        );
        assert_eq!(
            words("global warming/ice-age"),
            ["global", "global warming", "ice-age", "warming"]
        );
        assert_eq!(words("a @ 5 ' - \u{202e} 😀"), Vec::<String>::new());
        assert_eq!(words("Müll"), ["müll"]);
    }

    #[test]
    fn a_class_is_told_by_what_the_others_do_not_say() {
        let about = |titles: &[&'static str]| -> Vec<Text<'static>> {
            titles
                .iter()
                .map(|title| Text { title, body: "" })
                .collect()
        };
        let found = terms(&[
            about(&[
                "Climate change is in the news",
                "What the NASA says of climate change",
                "About coal, and the NASA on climate change",
                "More coal in the news",
            ]),
            about(&[
                "A guitar for my band",
                "The guitars of a band",
                "Guitar in the news",
            ]),
            Vec::new(),
        ]);
        assert_eq!(found[0], ["climate change", "coal", "NASA", "news"]);
        assert_eq!(found[1], ["guitar", "band"]);
        assert!(found[2].is_empty());
        assert_eq!(label(&found[0]).unwrap(), "climate change");
        assert_eq!(label(&found[1]).unwrap(), "guitar and band");
        assert_eq!(label(&found[2]), None);
    }

    #[test]
    fn one_long_post_does_not_speak_for_all() {
        let long = "turnip ".repeat(300);
        let texts = vec![
            Text {
                title: "A recipe",
                body: &long,
            },
            Text {
                title: "My recipe",
                body: "soup",
            },
            Text {
                title: "Soup",
                body: "a recipe",
            },
        ];
        assert_eq!(terms(&[texts])[0], ["recipe", "soup"]);
    }
}
