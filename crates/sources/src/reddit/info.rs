//! Decodes `/api/info`: for each known post, whether Reddit still shows it.
//!
//! The input is the response and the requested posts. The output is a [`PostFate`] for each of them. A child needs less
//! than a post to store: a deleted one may have neither title nor text.

use std::collections::HashMap;

use roux::response::{BasicThing, Listing as Children};
use serde_json::Value;

use crate::listing::ListingError;
use topicmill_core::{Fullname, PurgeReason};
use topicmill_score::reddit::is_placeholder;

/// The outcome of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostFate {
    /// It is there.
    Alive,
    /// It is there; the account of its author is not.
    Authorless,
    /// It is not.
    Gone(PurgeReason),
}

/// The fates of some posts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fates {
    /// The fate of each post in the response.
    pub fates: HashMap<Fullname, PostFate>,
    /// Crossposts with the posts that they show, the one whose text it is first.
    pub shows: Vec<(Fullname, Vec<Fullname>)>,
}

/// Decodes an answer. `None` in place of the whole if a child cannot be told: then nothing can be said of those that
/// are not there either.
pub(super) fn parse_info(bytes: &[u8]) -> Result<Option<Fates>, ListingError> {
    let text = String::from_utf8_lossy(bytes);
    let listing: BasicThing<Children<Value>> = serde_json::from_str(&text)?;
    let Fates {
        mut fates,
        mut shows,
    } = Fates::default();
    for child in &listing.data.children {
        let told = child.get("data").and_then(|data| Some((data, fate(data)?)));
        let Some((data, (fullname, fate))) = told else {
            return Ok(None);
        };
        if let Some((shown, gone)) = gone_parent(data) {
            // What Reddit says of the post itself counts for more.
            fates.entry(shown).or_insert(gone);
        }
        let shown = shown_by(data, &fullname);
        if !shown.is_empty() {
            shows.push((fullname.clone(), shown));
        }
        // After the parent's word, which it overwrites where both speak of one post.
        fates.insert(fullname, fate);
    }
    Ok(Some(Fates { fates, shows }))
}

/// The posts that a crosspost shows, in the order in which a listing looks for the one whose text it is.
fn shown_by(data: &Value, own: &Fullname) -> Vec<Fullname> {
    let above = data
        .get("crosspost_parent_list")
        .and_then(|list| list.get(0));
    let name = |of: Option<&Value>, field: &str| {
        let name: Fullname = of?.get(field)?.as_str()?.trim().parse().ok()?;
        (name != *own).then_some(name)
    };
    let names = [
        name(above, "crosspost_parent"),
        name(Some(data), "crosspost_parent"),
        name(above, "name").or_else(|| name(above, "id")),
    ];
    names.into_iter().flatten().collect()
}

/// The post that a crosspost shows, where Reddit does not show it any more: it may not be stored here, so that nobody
/// asks about it, but its text may, with the crosspost.
fn gone_parent(data: &Value) -> Option<(Fullname, PostFate)> {
    let shown = fate(data.get("crosspost_parent_list")?.get(0)?)?;
    matches!(shown.1, PostFate::Gone(_)).then_some(shown)
}

/// The name of a post, and how it fares.
fn fate(data: &Value) -> Option<(Fullname, PostFate)> {
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::trim);
    let fullname = text("name").or_else(|| text("id"))?.parse().ok()?;
    let mut texts = [text("selftext"), text("title")].into_iter().flatten();
    let placeholder = texts.find(|text| is_placeholder(text));
    let fate = match (text("removed_by_category"), placeholder) {
        (Some("deleted" | "author"), _) => PostFate::Gone(PurgeReason::Deleted),
        (None, Some(text)) if text.contains("deleted") => PostFate::Gone(PurgeReason::Deleted),
        // Moderators, their filters, and Reddit itself. The list grows; all of it means that it is not shown.
        (Some(_), _) | (None, Some(_)) => PostFate::Gone(PurgeReason::Removed),
        (None, None) if text("author") == Some("[deleted]") => PostFate::Authorless,
        (None, None) => PostFate::Alive,
    };
    Some((fullname, fate))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: &Value) -> PostFate {
        let mut data = json!({"name": "t3_a", "title": "A", "selftext": "text", "author": "me"});
        for (name, value) in fields.as_object().unwrap() {
            data[name] = value.clone();
        }
        fate(&data).unwrap().1
    }

    #[test]
    fn every_way_to_be_gone_is_told_from_the_others() {
        let (deleted, removed) = (
            PostFate::Gone(PurgeReason::Deleted),
            PostFate::Gone(PurgeReason::Removed),
        );
        for (fields, fate) in [
            (json!({"removed_by_category": null}), PostFate::Alive),
            (json!({"title": null, "selftext": null}), PostFate::Alive),
            (json!({"author": "[deleted]"}), PostFate::Authorless),
            (json!({"selftext": " [deleted]\n"}), deleted),
            (
                json!({"author": "[deleted]", "selftext": "[deleted]"}),
                deleted,
            ),
            (json!({"removed_by_category": "deleted"}), deleted),
            (json!({"removed_by_category": "author"}), deleted),
            (json!({"title": "[deleted by user]"}), deleted),
            (json!({"selftext": "[removed]"}), removed),
            (json!({"removed_by_category": "moderator"}), removed),
            (json!({"removed_by_category": "next year"}), removed),
        ] {
            assert_eq!(of(&fields), fate, "{fields}");
        }
    }

    #[test]
    fn a_crosspost_tells_that_its_post_is_gone() {
        let answer = |parent: Value, other: Value| {
            let crosspost =
                json!({"name": "t3_x", "title": "X", "crosspost_parent_list": [parent]});
            let children = json!([{"data": other}, {"data": crosspost}]);
            let listing = json!({"kind": "Listing", "data": {"children": children}});
            let answer = parse_info(listing.to_string().as_bytes()).unwrap().unwrap();
            assert_eq!(
                answer.shows,
                [("x".parse().unwrap(), vec!["p".parse().unwrap()])]
            );
            let fates = answer.fates;
            (fates.len(), fates.get(&"p".parse().unwrap()).copied())
        };
        let other = json!({"name": "t3_other", "title": "O"});
        let gone = json!({"name": "t3_p", "title": "P", "selftext": "[deleted]"});
        let deleted = Some(PostFate::Gone(PurgeReason::Deleted));
        assert_eq!(answer(gone.clone(), other.clone()), (3, deleted));
        let alive = json!({"name": "t3_p", "title": "P", "selftext": "text"});
        assert_eq!(answer(alive.clone(), other), (2, None));
        assert_eq!(answer(gone, alive), (2, Some(PostFate::Alive)));
    }

    #[test]
    fn a_child_that_cannot_be_told_leaves_the_answer_without_a_word() {
        let answer = |children: Value| {
            let listing = json!({"kind": "Listing", "data": {"children": children}});
            parse_info(listing.to_string().as_bytes())
        };
        let post = json!({"kind": "t3", "data": {"id": "a"}});
        assert_eq!(answer(json!([post])).unwrap().unwrap().fates.len(), 1);
        assert_eq!(answer(json!([])).unwrap().unwrap().fates.len(), 0);
        for odd in [
            json!(null),
            json!({"kind": "t3"}),
            json!({"data": {"title": "A"}}),
        ] {
            assert_eq!(answer(json!([post, odd])).unwrap(), None);
        }
        assert!(parse_info(b"<html>").is_err());
        assert!(parse_info(b"{}").is_err());
    }
}
