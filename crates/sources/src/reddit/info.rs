//! Decodes responses from `/api/info`, which show whether known posts are still on Reddit.
//!
//! The input is a response. The output is a [`PostState`] for each post in it. A child need not be a complete post: a
//! deleted post may have neither a title nor text.

use std::collections::HashMap;

use roux::response::{BasicThing, Listing as Children};
use serde_json::Value;

use crate::listing::ListingError;
use topicmill_core::reddit::is_placeholder;
use topicmill_core::{Fullname, PurgeReason};

/// The state of a post on Reddit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostState {
    /// Visible.
    Visible,
    /// Visible; its author's account is deleted.
    AuthorDeleted,
    /// Gone, for this reason.
    Gone(PurgeReason),
}

/// The states of posts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostStates {
    /// The state of each post in the response.
    pub states: HashMap<Fullname, PostState>,
    /// Crossposts, each with the posts that it shows; the first of these is the post whose text it shows.
    pub crossposts: Vec<(Fullname, Vec<Fullname>)>,
}

/// Decodes a response. Returns `None` if a child is invalid: nothing is then known about missing posts.
pub(super) fn parse_info(bytes: &[u8]) -> Result<Option<PostStates>, ListingError> {
    let text = String::from_utf8_lossy(bytes);
    let listing: BasicThing<Children<Value>> = serde_json::from_str(&text)?;
    let PostStates {
        mut states,
        mut crossposts,
    } = PostStates::default();
    for child in &listing.data.children {
        let decoded = child
            .get("data")
            .and_then(|data| Some((data, post_state(data)?)));
        let Some((data, (fullname, state))) = decoded else {
            return Ok(None);
        };
        if let Some((shown, gone)) = gone_parent(data) {
            // The post's own entry takes precedence.
            states.entry(shown).or_insert(gone);
        }
        let shown = shown_by(data, &fullname);
        if !shown.is_empty() {
            crossposts.push((fullname.clone(), shown));
        }
        // This overwrites an entry from a crosspost because the post's own entry is more reliable.
        states.insert(fullname, state);
    }
    Ok(Some(PostStates { states, crossposts }))
}

/// Returns the posts that a crosspost shows, in the order of `Fields::crosspost_parent`: the post with the text comes
/// first.
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

/// Returns the parent of a crosspost if Reddit no longer shows it. A parent that is not stored is never requested, but
/// its text may be stored with the crosspost.
fn gone_parent(data: &Value) -> Option<(Fullname, PostState)> {
    let shown = post_state(data.get("crosspost_parent_list")?.get(0)?)?;
    matches!(shown.1, PostState::Gone(_)).then_some(shown)
}

/// Returns a post's fullname and state.
fn post_state(data: &Value) -> Option<(Fullname, PostState)> {
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::trim);
    let fullname = text("name").or_else(|| text("id"))?.parse().ok()?;
    let mut texts = [text("selftext"), text("title")].into_iter().flatten();
    let placeholder = texts.find(|text| is_placeholder(text));
    let state = match (text("removed_by_category"), placeholder) {
        (Some("deleted" | "author"), _) => PostState::Gone(PurgeReason::Deleted),
        (None, Some(text)) if text.contains("deleted") => PostState::Gone(PurgeReason::Deleted),
        // The post was removed by moderators, their filters, or Reddit itself. New categories appear now and then, and
        // all mean that the post is not shown.
        (Some(_), _) | (None, Some(_)) => PostState::Gone(PurgeReason::Removed),
        (None, None) if text("author") == Some("[deleted]") => PostState::AuthorDeleted,
        (None, None) => PostState::Visible,
    };
    Some((fullname, state))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: &Value) -> PostState {
        let mut data = json!({"name": "t3_a", "title": "A", "selftext": "text", "author": "me"});
        for (name, value) in fields.as_object().unwrap() {
            data[name] = value.clone();
        }
        post_state(&data).unwrap().1
    }

    #[test]
    fn every_kind_of_removal_is_recognised() {
        let (deleted, removed) = (
            PostState::Gone(PurgeReason::Deleted),
            PostState::Gone(PurgeReason::Removed),
        );
        for (fields, state) in [
            (json!({"removed_by_category": null}), PostState::Visible),
            (json!({"title": null, "selftext": null}), PostState::Visible),
            (json!({"author": "[deleted]"}), PostState::AuthorDeleted),
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
            assert_eq!(of(&fields), state, "{fields}");
        }
    }

    #[test]
    fn a_crosspost_reveals_that_its_parent_is_gone() {
        let answer = |parent: Value, other: Value| {
            let crosspost =
                json!({"name": "t3_x", "title": "X", "crosspost_parent_list": [parent]});
            let children = json!([{"data": other}, {"data": crosspost}]);
            let listing = json!({"kind": "Listing", "data": {"children": children}});
            let answer = parse_info(listing.to_string().as_bytes()).unwrap().unwrap();
            assert_eq!(
                answer.crossposts,
                [("x".parse().unwrap(), vec!["p".parse().unwrap()])]
            );
            let states = answer.states;
            (states.len(), states.get(&"p".parse().unwrap()).copied())
        };
        let other = json!({"name": "t3_other", "title": "O"});
        let gone = json!({"name": "t3_p", "title": "P", "selftext": "[deleted]"});
        let deleted = Some(PostState::Gone(PurgeReason::Deleted));
        assert_eq!(answer(gone.clone(), other.clone()), (3, deleted));
        let alive = json!({"name": "t3_p", "title": "P", "selftext": "text"});
        assert_eq!(answer(alive.clone(), other), (2, None));
        assert_eq!(answer(gone, alive), (2, Some(PostState::Visible)));
    }

    #[test]
    fn an_invalid_child_makes_the_whole_response_inconclusive() {
        let answer = |children: Value| {
            let listing = json!({"kind": "Listing", "data": {"children": children}});
            parse_info(listing.to_string().as_bytes())
        };
        let post = json!({"kind": "t3", "data": {"id": "a"}});
        assert_eq!(answer(json!([post])).unwrap().unwrap().states.len(), 1);
        assert_eq!(answer(json!([])).unwrap().unwrap().states.len(), 0);
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
