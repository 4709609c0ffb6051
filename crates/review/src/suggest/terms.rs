//! Finds the terms that distinguish clusters of posts, with the class-based TF-IDF of `BERTopic`
//! (<https://arxiv.org/abs/2203.05794>): the frequency of a term in a class times log(1 + A/f), where f is the
//! frequency of the term in all classes, and A is the mean size of a class.
//!
//! The input is the posts of each class; the output is the class's terms of one or two words, best first. A post adds 1
//! to the frequency of each of its terms, or 2 if the title contains the term, so that one long post does not dominate.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

/// English stop words and words that are common on Reddit; the file gives its source.
const STOP_WORDS: &str = include_str!("stop_words.txt");
static ENGLISH: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    let lines = STOP_WORDS.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).collect()
});
/// Stop words in other languages, each with a bit set for every language that contains it.
static OTHERS: LazyLock<HashMap<&str, u64>> = LazyLock::new(|| {
    let mut words: HashMap<&str, u64> = HashMap::new();
    let others = stop_words::available_languages().iter();
    for (bit, language) in others.filter(|code| **code != "en").take(64).enumerate() {
        for word in stop_words::get(language) {
            *words.entry(word).or_default() |= 1 << bit;
        }
    }
    words
});

/// Number of characters to read from a body, about as many as the default model reads.
const MOST_CHARS: usize = 2_000;
/// Maximum number of characters in a word.
const LONGEST: usize = 30;
/// A term must be in at least this many posts in its class, because a single post is no evidence.
const FEWEST: usize = 2;
/// A term must be in at least one in this many posts in its class.
const RAREST: usize = 20;
/// Maximum number of terms per class.
const KEPT: usize = 8;
/// A term can name a cluster if at least one in this many of its posts contains the term. In the tuning data, at least
/// 86 % of the posts in such a cluster are about one topic; a third of the clusters without such a term mix topics.
const DISTINCTIVE: usize = 3;
/// Maximum number of characters in a label made of two terms.
const LONG: usize = 30;
/// Maximum number of characters in an acronym that keeps its capitals.
const ACRONYM: usize = 5;

/// The text of a post.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text<'a> {
    pub title: &'a str,
    pub body: &'a str,
}

/// The frequency of a term in a class.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    /// Number of posts with the term, plus the number of titles with the term.
    weight: u32,
    posts: usize,
}

/// Counts of a word's spellings.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    all: u32,
    upper: u32,
    capital: u32,
}

/// A term of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Term {
    /// One or two words.
    pub words: String,
    /// Number of posts in the class with the term.
    pub posts: usize,
}

/// Returns the terms of each class, best first.
pub(super) fn terms(classes: &[Vec<Text<'_>>]) -> Vec<Vec<Term>> {
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
        // Ties are broken by the term, for reproducible results.
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let kept = remove_redundant(&scored).into_iter().take(KEPT);
        let term = |term: &str| Term {
            words: spelled(term, &written),
            posts: counted[term].posts,
        };
        kept.map(term).collect()
    };
    classes.iter().zip(&counted).map(of).collect()
}

fn counts(texts: &[Text<'_>], written: &mut HashMap<String, Written>) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for text in texts {
        let end = text.body.char_indices().nth(MOST_CHARS);
        let body = &text.body[..end.map_or(text.body.len(), |(at, _)| at)];
        let language = language(text.title.split_whitespace().chain(body.split_whitespace()));
        let of_title = grams(text.title, language, written);
        let of_body = grams(body, language, written);
        for term in of_title.union(&of_body) {
            let count = counts.entry(term.clone()).or_default();
            count.posts += 1;
            count.weight += 1 + u32::from(of_title.contains(term));
        }
    }
    counts
}

/// Detects a language other than English by its stop words and returns the language's bit. Returns 0 if the text
/// contains fewer than three stop words of that language, or at least half as many English ones, because languages
/// share words.
fn language<'t>(words: impl Iterator<Item = &'t str>) -> u64 {
    let mut counts = [0u32; 64];
    let mut english = 0;
    for word in words.take(MOST_CHARS / 4) {
        let word = word
            .trim_matches(|c: char| !c.is_alphanumeric())
            .to_lowercase();
        english += u32::from(ENGLISH.contains(word.as_str()));
        let languages = OTHERS.get(word.as_str()).copied().unwrap_or_default();
        for (bit, count) in counts.iter_mut().enumerate() {
            *count += u32::from(languages >> bit & 1 == 1);
        }
    }
    let most = (0..64).max_by_key(|bit| (counts[*bit], std::cmp::Reverse(*bit)));
    most.filter(|bit| counts[*bit] >= 3 && counts[*bit] > 2 * english)
        .map_or(0, |bit| 1 << bit)
}

/// Returns words and pairs of adjacent words, without stop words in English and in the text's language.
fn grams(text: &str, language: u64, written: &mut HashMap<String, Written>) -> HashSet<String> {
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
            if !is_term(&lower)
                || OTHERS
                    .get(lower.as_str())
                    .is_some_and(|of| of & language != 0)
            {
                // A stop word between two words separates them.
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
            // Punctuation ends a phrase.
            if !rest.is_empty() || piece.ends_with(|c: char| !c.is_alphanumeric()) {
                before = None;
            }
        }
    }
    found
}

/// Returns a token without Markdown link targets; `None` for URLs and names of subreddits or users.
fn prose(piece: &str) -> Option<&str> {
    // `[text](address)`
    let piece = piece.split_once("](").map_or(piece, |(text, _)| text);
    let plain = piece.trim_start_matches(['(', '[', '<', '*', '/', '"']);
    let lower = plain.get(..4).unwrap_or(plain).to_lowercase();
    let is_name = lower.starts_with("r/") || lower.starts_with("u/") || lower == "www.";
    let is_address = plain.contains("://") || plain.contains('@');
    (!is_name && !is_address).then_some(piece)
}

/// Splits a token after its first word and drops the separator.
fn next_word(piece: &str) -> (&str, &str) {
    let ends = |c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '’' | '-'));
    match piece.char_indices().find(|(_, c)| ends(*c)) {
        Some((at, sign)) => (&piece[..at], &piece[at + sign.len_utf8()..]),
        None => (piece, ""),
    }
}

fn is_term(word: &str) -> bool {
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let length = word.chars().count();
    // `3d` is a word, but `35f` is an age. A single Chinese or Japanese character is a word; a single Latin letter is
    // not.
    let long_enough = length > 1 || word.chars().any(|c| c > '\u{2e80}');
    2 * letters > digits && long_enough && length <= LONGEST && !ENGLISH.contains(word)
}

/// Removes redundant terms. Of the terms that share a word, in the singular or the plural, the best one is kept.
/// However, a pair of words replaces better single words if it has at least half the weight of the best single word.
fn remove_redundant<'t>(scored: &[(f64, &'t str, Count)]) -> Vec<&'t str> {
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

/// Strips a plural ending.
fn stem(word: &str) -> &str {
    let short = word.strip_suffix("ies").or(word.strip_suffix('y'));
    let short = short.or(word.strip_suffix('s').filter(|stem| !stem.ends_with('s')));
    short.filter(|stem| stem.len() > 2).unwrap_or(word)
}

/// Restores the usual spelling of a term: names and acronyms keep their capitals.
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

/// Returns a label text made from the terms of a cluster with this number of posts: the two best terms, or only the
/// best one if it consists of two words or both are too long. `None` if the best term is in fewer than a
/// [third](DISTINCTIVE) of the posts.
pub(super) fn label(terms: &[Term], posts: usize) -> Option<String> {
    let first = terms.first()?;
    let is_distinctive = first.posts * DISTINCTIVE >= posts;
    let joined = terms
        .get(1)
        .map(|second| format!("{} and {}", first.words, second.words));
    let fits = |joined: &String| !first.words.contains(' ') && joined.chars().count() <= LONG;
    is_distinctive.then(|| joined.filter(fits).unwrap_or_else(|| first.words.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut found: Vec<String> =
            grams(text, language(text.split_whitespace()), &mut HashMap::new())
                .into_iter()
                .collect();
        found.sort();
        found
    }

    fn words_of(terms: &[Term]) -> Vec<&str> {
        terms.iter().map(|term| &term.words[..]).collect()
    }

    #[test]
    fn terms_exclude_urls_names_and_numbers() {
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
        assert_eq!(
            words("Ich und der Krieg, was war das, und wie die Sirene ging"),
            ["krieg", "sirene"]
        );
        assert_eq!(words("The war"), ["war"]);
    }

    #[test]
    fn terms_distinguish_a_class_from_the_others() {
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
        assert_eq!(
            words_of(&found[0]),
            ["climate change", "coal", "NASA", "news"]
        );
        assert_eq!(words_of(&found[1]), ["band", "guitar"]);
        assert!(found[2].is_empty());
        assert_eq!(label(&found[0], 4).unwrap(), "climate change");
        assert_eq!(label(&found[1], 3).unwrap(), "band and guitar");
        assert_eq!(label(&found[2], 0), None);
        assert_eq!(
            label(&found[1], 10),
            None,
            "the best term is in too few posts"
        );
    }

    #[test]
    fn one_long_post_does_not_dominate() {
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
        assert_eq!(words_of(&terms(&[texts])[0]), ["recipe", "soup"]);
    }
}
