//! The tables, views and columns of a database, and what they mean: docs/schema.md, built in and read.
//!
//! A test compares that page with both databases, so what is shown here is what is there.

use serde::Serialize;

/// The page.
const PAGE: &str = include_str!("../../docs/schema.md");
/// Names that have so many letters wrong, or a third of them, are too far away to be meant.
const FAR: usize = 3;

/// A table or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Relation {
    /// As SQL names it.
    pub name: String,
    /// `view` or `table`.
    pub kind: &'static str,
    /// What a row is.
    pub meaning: String,
    /// Its columns, in their order.
    pub columns: Vec<Column>,
}

/// A column of a table or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// As SQL names it.
    pub name: String,
    /// The page's word, which stands for a type of each database.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it may be NULL.
    pub may_be_null: bool,
    /// What it means.
    pub meaning: String,
}

/// Why there is nothing to show.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "topicmill makes no table or view `{name}`; {nearest}`topicmill sql --schema` lists them all"
)]
pub struct UnknownRelation {
    name: String,
    nearest: String,
}

/// Every view and table, in the order of the page: the views come first.
pub fn relations() -> Vec<Relation> {
    let mut all = Vec::new();
    for section in PAGE.split("\n## ").skip(1) {
        let kind = if section.starts_with("Views") {
            "view"
        } else {
            "table"
        };
        let parts = section.split("\n### `").skip(1);
        all.extend(parts.filter_map(|part| relation(kind, part)));
    }
    all
}

/// One of them. A schema before the name (`public.`, `main.`) and capital letters do not count.
///
/// # Errors
/// Where there is none of this name; the error has the nearest ones.
pub fn relation_named(name: &str) -> Result<Relation, UnknownRelation> {
    let all = relations();
    let bare = name.rsplit('.').next().unwrap_or(name);
    let bare = bare.trim_matches('"').to_lowercase();
    if let Some(found) = all.iter().find(|one| one.name == bare) {
        return Ok(found.clone());
    }
    let distance = |one: &&Relation| strsim::levenshtein(&one.name, &bare);
    let most = FAR.max(bare.chars().count() / 3);
    let mut near: Vec<&Relation> = all
        .iter()
        .filter(|one| {
            distance(one) <= most || (bare.chars().count() > FAR && one.name.contains(&bare))
        })
        .collect();
    near.sort_by_key(distance);
    let near: Vec<String> = near
        .iter()
        .take(3)
        .map(|one| format!("`{}`", one.name))
        .collect();
    Err(UnknownRelation {
        name: name.to_owned(),
        nearest: match near.len() {
            0 => String::new(),
            _ => format!("the nearest is {}; ", near.join(" or ")),
        },
    })
}

/// Reads what follows the heading of a table or view.
fn relation(kind: &'static str, part: &str) -> Option<Relation> {
    let (name, rest) = part.split_once('`')?;
    let meaning: Vec<&str> = rest
        .lines()
        .take_while(|line| !line.starts_with('|'))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let columns = rest.lines().filter(|line| line.starts_with("| `"));
    Some(Relation {
        name: name.to_owned(),
        kind,
        meaning: without_links(&meaning.join(" ")),
        columns: columns.filter_map(column).collect(),
    })
}

fn column(row: &str) -> Option<Column> {
    let mut cells = row.trim_matches('|').splitn(3, " | ").map(str::trim);
    let (name, kind, meaning) = (cells.next()?, cells.next()?, cells.next()?);
    let (kind, may_be_null) = match kind.strip_suffix(" or NULL") {
        Some(kind) => (kind, true),
        None => (kind, false),
    };
    Some(Column {
        name: name.trim_matches('`').to_owned(),
        kind: kind.to_owned(),
        may_be_null,
        meaning: without_links(meaning),
    })
}

/// `[words](address)` as its words.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let ends = link
            .split_once("](")
            .and_then(|(words, after)| Some((words, after.split_once(')')?.1)));
        let Some((words, after)) = ends else { break };
        plain.push_str(before);
        plain.push_str(words);
        rest = after;
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_read_whole() {
        let all = relations();
        let views = all.iter().filter(|one| one.kind == "view").count();
        assert_eq!(views, PAGE.matches("### `").count() - tables());
        assert!(all.iter().all(|one| !one.meaning.is_empty()));
        assert!(all.iter().all(|one| !one.columns.is_empty()));
        let columns: usize = all.iter().map(|one| one.columns.len()).sum();
        // The table of types has rows that begin otherwise.
        assert_eq!(columns, PAGE.matches("\n| `").count());
    }

    fn tables() -> usize {
        let all = relations();
        all.iter().filter(|one| one.kind == "table").count()
    }

    #[test]
    fn a_name_is_found_as_sql_would_and_another_one_names_the_nearest() {
        for name in ["posts", "Posts", "public.posts", "main.\"posts\""] {
            assert_eq!(relation_named(name).unwrap().name, "posts");
        }
        let said = |name: &str| relation_named(name).unwrap_err().to_string();
        assert!(
            said("post").contains("nearest is `posts`"),
            "{}",
            said("post")
        );
        assert!(said("labelled_posts").contains("`labeled_posts`"));
        assert!(said("scores").contains("`post_scores`"));
        assert!(!said("zzzzzzzz").contains("nearest"));
    }

    #[test]
    fn links_lose_their_addresses() {
        assert_eq!(without_links("a [b](c.md) d [e] f"), "a b d [e] f");
        assert_eq!(without_links("[x](y)"), "x");
    }
}
