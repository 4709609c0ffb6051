//! Decodes posts that were requested by id, and whether they are still on Reddit.
//!
//! The input is a response from Reddit's `/api/info`, or rows of an archive. The output is its posts, and a
//! [`PostState`] for each item. An item need not be a complete post: a deleted post may have neither a title nor text.

use std::collections::HashMap;

use crate::listing::{ListingError, parse_listing};
use crate::page::ListingPage;
use crate::post::Fields;
use topicmill_core::{Fullname, PurgeReason, SourceKind};

/// Posts requested by fullname.
#[derive(Debug)]
pub struct FoundPosts {
    /// The posts that the source returned, some without their text.
    pub page: ListingPage,
    /// The state of each post. `None` if an item of Reddit's response is invalid: that item may be a missing post.
    pub states: Option<PostStates>,
}

/// The state of a post on Reddit, now or when an archive last read it.
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

impl PostStates {
    /// Adds the states that a post shows; returns false if it is invalid.
    pub(super) fn add(&mut self, post: &Fields) -> bool {
        let Some((fullname, state)) = post_state(post) else {
            return false;
        };
        // A parent that is not stored is never requested, but its text may be stored with the crosspost.
        if let Some((shown, gone @ PostState::Gone(_))) = post.shown().and_then(post_state) {
            // The post's own entry takes precedence.
            self.states.entry(shown).or_insert(gone);
        }
        let shown: Vec<Fullname> = post.shown_names(&fullname).collect();
        if !shown.is_empty() {
            self.crossposts.push((fullname.clone(), shown));
        }
        // This overwrites an entry from a crosspost because the post's own entry is more reliable.
        self.states.insert(fullname, state);
        true
    }

    /// Adds the states of another response.
    pub(super) fn extend(&mut self, other: Self) {
        self.states.extend(other.states);
        self.crossposts.extend(other.crossposts);
    }
}

/// Decodes a response.
pub(super) fn parse_info(bytes: &[u8], source: SourceKind) -> Result<FoundPosts, ListingError> {
    let (mut states, mut is_clear) = (PostStates::default(), true);
    let page = parse_listing(bytes, source, None, |child| {
        let post = child.and_then(|child| child.data.object());
        is_clear &= post.is_some_and(|post| states.add(post));
    })?;
    let states = is_clear.then_some(states);
    Ok(FoundPosts { page, states })
}

/// Returns a post's fullname and state.
fn post_state(post: &Fields) -> Option<(Fullname, PostState)> {
    let fullname = post.fullname().ok()?;
    let author = post.author.str().map(str::trim);
    let state = match post.removal() {
        Some(reason) => PostState::Gone(reason),
        None if author == Some("[deleted]") => PostState::AuthorDeleted,
        None => PostState::Visible,
    };
    Some((fullname, state))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use topicmill_core::table;

    use super::*;

    fn states_in(listing: &Value) -> Option<PostStates> {
        let found = parse_info(listing.to_string().as_bytes(), SourceKind::Reddit);
        found.unwrap().states
    }

    fn state_with(fields: &Value) -> PostState {
        let mut data = json!({"name": "t3_a", "title": "A", "selftext": "text", "author": "me"});
        for (name, value) in fields.as_object().unwrap() {
            data[name] = value.clone();
        }
        let fields: Fields = serde_json::from_value(data).unwrap();
        post_state(&fields).unwrap().1
    }

    #[test]
    fn every_kind_of_removal_is_recognised() {
        let (deleted, removed) = (
            PostState::Gone(PurgeReason::Deleted),
            PostState::Gone(PurgeReason::Removed),
        );
        for (fields, state) in table! {
            json!({"removed_by_category": null}), PostState::Visible;
            json!({"title": null, "selftext": null}), PostState::Visible;
            json!({"author": "[deleted]"}), PostState::AuthorDeleted;
            json!({"selftext": " [deleted]\n"}), deleted;
            json!({"author": "[deleted]", "selftext": "[deleted]"}), deleted;
            json!({"removed_by_category": "deleted"}), deleted;
            json!({"removed_by_category": "author"}), deleted;
            json!({"title": "[deleted by user]"}), deleted;
            json!({"selftext": "[removed]"}), removed;
            json!({"removed_by_category": "moderator"}), removed;
            json!({"removed_by_category": "next year"}), removed;
            json!({"_meta": {"was_deleted_later": true}}), removed;
            json!({"_meta": {"was_deleted_later": true, "removal_type": "deleted"}}), deleted;
            json!({"_meta": {"was_initially_deleted": true, "removal_type": "moderator"}}), PostState::Visible;
        } {
            assert_eq!(state_with(&fields), state, "{fields}");
        }
    }

    #[test]
    fn a_crosspost_reveals_that_its_parent_is_gone() {
        let answer = |parent: Value, other: Value| {
            let crosspost =
                json!({"name": "t3_x", "title": "X", "crosspost_parent_list": [parent]});
            let children = json!([{"data": other}, {"data": crosspost}]);
            let listing = json!({"kind": "Listing", "data": {"children": children}});
            let answer = states_in(&listing).unwrap();
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
            states_in(&listing)
        };
        let post = json!({"kind": "t3", "data": {"id": "a"}});
        assert_eq!(answer(json!([post])).unwrap().states.len(), 1);
        assert_eq!(answer(json!([])).unwrap().states.len(), 0);
        for odd in [
            json!(null),
            json!({"kind": "t3"}),
            json!({"data": {"title": "A"}}),
        ] {
            assert_eq!(answer(json!([post, odd])), None);
        }
        assert!(parse_info(b"<html>", SourceKind::Reddit).is_err());
        assert!(parse_info(b"{}", SourceKind::Reddit).is_err());
    }
}
