//! Parses the topics of a pipeline file: the `[[topic]]` tables, or the entries of `labels`.

use std::collections::HashMap;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;
use topicmill_score::slug;

use super::mistakes::{Findings, nearest, quoted};
use super::section::{Located, Section, whole_of};
use topicmill_core::{Listing, Topic};
use topicmill_sources::page::check_subreddit;

/// Top-level keys.
pub(super) const FILE_KEYS: &[&str] = &[
    "name",
    "hypothesis_template",
    "mode",
    "threshold",
    "temperature",
    "background",
    "background_without",
    "background_weight",
    "labels",
    "topic",
    "fitted",
    "schedule",
];
/// Keys of a topic.
pub(super) const TOPIC_KEYS: &[&str] = &[
    "slug",
    "label",
    "descriptions",
    "subreddits",
    "read",
    "share",
    "listing",
    "limit",
];
/// Defaults of a topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults<'a> {
    /// Name of the label set.
    pub name: &'a str,
    /// Folder that paths in the file are relative to.
    pub folder: &'a Path,
    pub listing: Listing,
    pub limit: u32,
}
/// Valid limits of a topic: a Reddit listing has at most 1,000 posts.
const LIMITS: std::ops::RangeInclusive<u32> = 1..=1000;
/// Maximum share of a subreddit.
const MOST_SHARE: u32 = 1000;

/// A topic with its position in the file.
pub(super) struct ParsedTopic {
    pub topic: Topic,
    /// Byte offset in the file.
    pub at: usize,
    /// Shares of its subreddits, if all of them are read.
    pub shares: Option<Vec<u32>>,
}

/// Reads the topics, or creates one per entry of `labels`.
pub(super) fn read_topics(
    file: Section,
    defaults: Defaults,
    found: &mut Findings,
) -> Vec<ParsedTopic> {
    let read = match (file.list("labels", found), file.get("topic")) {
        (Some(labels), None) => {
            let labels = labels.value.iter();
            let read = labels.filter_map(|label| short_topic(label, defaults, found));
            read.collect()
        }
        (None, Some(_)) => {
            let Some(topics) = file.list("topic", found) else {
                return Vec::new();
            };
            let topics = topics.value.iter();
            let read = topics.filter_map(|topic| {
                let at = topic.span().start;
                let Some(table) = topic.get_ref().as_table() else {
                    found.wrong(
                        at,
                        "a topic is a table: write [[topic]], or list the words of each label in `labels`",
                    );
                    return None;
                };
                read_topic(Section::new(table, at), defaults, found)
            });
            read.collect()
        }
        (Some(labels), Some(_)) => {
            found.wrong(
                labels.at,
                "`labels` and [[topic]] cannot be combined: write each label as a [[topic]], or remove the topics",
            );
            return Vec::new();
        }
        (None, None) => Vec::new(),
    };
    let topics = file.get("labels").or(file.get("topic"));
    let empty = topics.is_none_or(|topics| {
        topics
            .get_ref()
            .as_array()
            .is_some_and(|list| list.is_empty())
    });
    if empty && !is_misspelt(file, &["labels", "topic"], FILE_KEYS) {
        found.missing(
            topics.map_or(0, |topics| topics.span().start),
            "the label set has no labels: write `labels = [\"climate change\", \"gaming\"]`, or a [[topic]] with a \
             `label`",
        );
    }
    find_duplicate_slugs(&read, found);
    read
}

/// Creates the topic of an entry of `labels`; nothing is collected for it.
fn short_topic(
    label: &Spanned<DeValue>,
    defaults: Defaults,
    found: &mut Findings,
) -> Option<ParsedTopic> {
    let at = label.span().start;
    let Some(label) = label.get_ref().as_str() else {
        found.wrong(
            at,
            "an entry of `labels` is a string in quotes; for further keys write a [[topic]]",
        );
        return None;
    };
    let topic = Topic {
        slug: slug_of_label(label, at, found)?,
        label: label.to_owned(),
        descriptions: Vec::new(),
        subreddits: Vec::new(),
        listing: defaults.listing,
        is_default_listing: true,
        limit: defaults.limit,
    };
    let shares = None;
    Some(ParsedTopic { topic, at, shares })
}

/// Derives the slug from the words of a label.
fn slug_of_label(label: &str, at: usize, found: &mut Findings) -> Option<String> {
    if label.trim().is_empty() {
        found.wrong(at, "the label is empty: fill it in");
        return None;
    }
    if label.contains('\0') {
        found.wrong(
            at,
            "the label contains a NUL, which no database stores: remove it",
        );
        return None;
    }
    let made = slug(label);
    if made.is_empty() {
        let label = quoted(label);
        let text = format!(
            "no slug can be made from the label {label}: write it as a [[topic]] with a `slug`"
        );
        found.wrong(at, text);
        return None;
    }
    Some(made)
}

fn read_topic(topic: Section, defaults: Defaults, found: &mut Findings) -> Option<ParsedTopic> {
    let of_the_file = (FILE_KEYS, "above the first [[topic]]");
    topic.unknown_keys(TOPIC_KEYS, Some(of_the_file), found);
    let slug = topic.text("slug", found);
    let label = topic.text("label", found);
    let descriptions = topic.texts("descriptions", found);
    let subreddits = read_subreddits(topic, found);
    let shares = read_shares(topic, &subreddits, found);
    let listing = topic.word::<Listing>("listing", found);
    let limit = topic.whole("limit", found);
    let wrong = limit
        .as_ref()
        .filter(|limit| !LIMITS.contains(&limit.value));
    if let Some(Located { at, value }) = wrong {
        let text = format!("its limit is {value}; Reddit lists 1 to 1000 posts");
        found.wrong(*at, format!("{}{text}", topic_prefix(topic)));
    }
    if topic.get("label").is_none() && !is_misspelt(topic, &["label"], TOPIC_KEYS) {
        let slug = slug.as_ref();
        let slug = slug.map_or(String::new(), |slug| format!(" {}", quoted(&slug.value)));
        found.missing(
            topic.at,
            format!(
                "topic{slug} has no `label`: add the words that the model reads, as in label = \"climate change\""
            ),
        );
    }
    let (slug, label) = names(topic, slug, label, found)?;
    let topic_read = Topic {
        slug,
        label,
        descriptions: descriptions
            .into_iter()
            .map(|placed| placed.value)
            .collect(),
        subreddits,
        is_default_listing: listing.is_none(),
        listing: listing.map_or(defaults.listing, |listing| listing.value),
        limit: limit.map_or(defaults.limit, |limit| limit.value),
    };
    Some(ParsedTopic {
        topic: topic_read,
        at: topic.at,
        shares,
    })
}

/// Returns the slug and the label of a topic. If the label is missing, the slug is used instead, so that duplicate
/// slugs are still found.
fn names(
    topic: Section,
    slug: Option<Located<String>>,
    label: Option<Located<String>>,
    found: &mut Findings,
) -> Option<(String, String)> {
    if let Some(label) = label.as_ref().filter(|label| label.value.trim().is_empty()) {
        found.wrong(label.at, "the label is empty: fill it in");
        return None;
    }
    match (slug, label) {
        (Some(slug), _) if slug.value.trim().is_empty() => {
            let text = "the slug is empty: give it a short name, or leave the key out";
            found.wrong(slug.at, text);
            None
        }
        (Some(slug), Some(label)) => Some((slug.value, label.value)),
        (Some(slug), None) => Some((slug.value.clone(), slug.value)),
        (None, Some(label)) if topic.get("slug").is_none() => {
            Some((slug_of_label(&label.value, label.at, found)?, label.value))
        }
        (None, _) => None,
    }
}

/// Returns the start of a message about a topic.
fn topic_prefix(topic: Section) -> String {
    let named = topic.get("slug").or_else(|| topic.get("label"));
    let name = named.and_then(|name| name.get_ref().as_str());
    name.map_or(String::new(), |name| format!("topic {}: ", quoted(name)))
}

fn read_subreddits(topic: Section, found: &mut Findings) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for Located { at, value: name } in topic.texts("subreddits", found) {
        let again = names.iter().any(|known| known.eq_ignore_ascii_case(&name));
        if let Err(error) = check_subreddit(&name) {
            found.wrong(at, format!("{}{error}", topic_prefix(topic)));
        } else if again {
            let text = format!(
                "{}r/{name} is listed twice: remove one",
                topic_prefix(topic)
            );
            found.wrong(at, text);
        } else {
            names.push(name);
        }
    }
    names
}

/// Reads the shares of a topic with read = "all".
fn read_shares(topic: Section, subreddits: &[String], found: &mut Findings) -> Option<Vec<u32>> {
    let which = topic.text("read", found);
    let which = which.as_ref().map(|which| (which.at, &*which.value));
    let shares = topic.list("share", found);
    if let Some((at, word)) = which.filter(|(_, word)| !matches!(*word, "first" | "all")) {
        let word = quoted(word);
        found.wrong(at, format!("`read`: {word} is not one of first, all"));
        return None;
    }
    if which.is_none_or(|(_, word)| word != "all") {
        if let Some(shares) = shares.filter(|_| topic.get("read").is_none() || which.is_some()) {
            found.wrong(
                shares.at,
                "`share` is for topics with read = \"all\": add that, or leave `share` out",
            );
        }
        return None;
    }
    let Some(shares) = shares else {
        return Some(vec![1; subreddits.len()]);
    };
    let listed = topic
        .get("subreddits")
        .and_then(|list| list.get_ref().as_array());
    if listed.map_or(1, |list| list.len()) != shares.value.len() {
        found.wrong(
            shares.at,
            "`share` needs one number for each subreddit, in their order, as in share = [2, 1]",
        );
    }
    let mut numbers = Vec::with_capacity(shares.value.len());
    for share in shares.value {
        match whole_of(share.get_ref()) {
            Some(number) if (1..=MOST_SHARE).contains(&number) => numbers.push(number),
            _ => found.wrong(
                share.span().start,
                format!("a share is a whole number from 1 to {MOST_SHARE}, as in share = [2, 1]"),
            ),
        }
    }
    Some(numbers)
}

/// Reports slugs used by two topics.
fn find_duplicate_slugs(topics: &[ParsedTopic], found: &mut Findings) {
    let mut first: HashMap<&str, &Topic> = HashMap::new();
    for ParsedTopic { topic, at, .. } in topics {
        let Some(other) = first.insert(&topic.slug, topic) else {
            continue;
        };
        let (slug, label) = (quoted(&topic.slug), quoted(&topic.label));
        let text = if other.label == topic.label {
            format!(
                "label {label} (slug {slug}) is listed twice: remove one, or change its `slug` in a [[topic]]"
            )
        } else {
            let other = quoted(&other.label);
            format!(
                "slug {slug} is used twice, for {other} and for {label}: change the `slug` of one in a [[topic]]"
            )
        };
        found.wrong(*at, text);
    }
}

/// Returns true if an unknown key is most likely a misspelling of a wanted key, which is then not reported as missing.
fn is_misspelt(section: Section, wanted: &[&str], known: &[&'static str]) -> bool {
    section.keys().any(|key| {
        let key = key.get_ref();
        !known.contains(&key.as_ref())
            && nearest(key, known).is_some_and(|nearest| wanted.contains(&nearest))
    })
}
