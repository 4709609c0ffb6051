//! The fields of a thing. "Thing" is Reddit's word for an object with a `kind` and `data`.
//!
//! The wire format is ambiguous: a name may be missing, a post may be inside a crosspost. This module defines the
//! meaning of each form; `field.rs` does so for a single field.

mod read;

use serde_json::Value;

use super::field::{Field, is_null};
use super::time_of_post;
use topicmill_core::reddit::is_placeholder;
use topicmill_core::{
    Fullname, FullnameError, PurgeReason, RejectReason, Reply, ThingKind, Timestamp,
};

/// Declares the fields to read from a thing, from its data, or from objects in its data. A row in a dump contains a
/// hundred fields; the rest are skipped without being copied.
macro_rules! fields {
    ($($field:ident = $name:literal),+ $(,)?) => {
        /// The fields of a thing, or of a post.
        #[derive(Debug, Default)]
        pub struct Fields {
            $(pub(in crate) $field: Field),+
        }

        impl Fields {
            fn field_mut(&mut self, name: &str) -> Option<&mut Field> {
                match name {
                    $($name => Some(&mut self.$field),)+
                    _ => None,
                }
            }
        }
    };
}

fields! {
    author = "author", body = "body", created_utc = "created_utc", crosspost_parent = "crosspost_parent",
    crosspost_parent_list = "crosspost_parent_list", data = "data", flair = "link_flair_text", id = "id",
    is_self = "is_self", is_submitter = "is_submitter", kind = "kind", link_id = "link_id", meta = "_meta",
    name = "name", num_comments = "num_comments", over_18 = "over_18", parent = "parent", parent_id = "parent_id",
    permalink = "permalink", promoted = "promoted", removal_type = "removal_type",
    removed_by_category = "removed_by_category",
    retrieved_2nd_on = "retrieved_2nd_on", retrieved_on = "retrieved_on", retrieved_utc = "retrieved_utc",
    score = "score", selftext = "selftext", stickied = "stickied", subreddit = "subreddit", title = "title",
    topic = "topic", ups = "ups", upvote_ratio = "upvote_ratio", url = "url",
    was_deleted_later = "was_deleted_later", was_initially_deleted = "was_initially_deleted",
}

impl Fields {
    /// Sets a field; ignores unknown names.
    pub(crate) fn set(&mut self, name: &str, value: Value) {
        if let Some(field) = self.field_mut(name) {
            *field = Field::Value(value);
        }
    }

    /// Sets a field that is missing or null.
    pub(crate) fn set_default(&mut self, name: &str, value: &str) {
        if self.field_mut(name).is_some_and(|field| field.is_null()) {
            self.set(name, value.into());
        }
    }

    /// Returns true if the field is an object.
    pub(crate) fn is_object(&mut self, name: &str) -> bool {
        let field = self.field_mut(name);
        field.is_some_and(|field| field.object().is_some())
    }

    /// Calls `change` with the fields of the post inside a thing, or with these fields.
    pub(crate) fn with_post<T>(&mut self, change: impl FnOnce(&mut Self) -> T) -> T {
        match &mut self.data {
            Field::Object(post) => change(post),
            _ => change(self),
        }
    }

    /// Returns true if a field is missing that every dump and every response of Reddit has.
    pub(crate) fn is_partial(&self) -> bool {
        let usual = [
            &self.id,
            &self.subreddit,
            &self.created_utc,
            &self.author,
            &self.score,
        ];
        let comment = [&self.body, &self.link_id, &self.parent_id];
        let post = [
            &self.title,
            &self.selftext,
            &self.num_comments,
            &self.over_18,
        ];
        let lacks = |fields: &[&Field]| fields.iter().any(|field| !field.is_present());
        lacks(&usual) || lacks(&post) && lacks(&comment)
    }

    /// Returns true for a comment: its name or its kind says so, it replies to a thing, or it has the address of a
    /// comment.
    pub(crate) fn is_comment(&self) -> bool {
        let is_named = |prefix: &str| self.name.has_prefix(prefix) || self.id.has_prefix(prefix);
        if is_named("t3_") || self.kind.str() == Some("t3") {
            return false;
        }
        let replied_to = [&self.link_id, &self.parent_id];
        let has_parent = || self.parent.word().is_some();
        is_named("t1_")
            || matches!(self.kind.str(), Some("t1" | "comment"))
            || replied_to.iter().any(|name| name.has_prefix("t1_") || name.has_prefix("t3_"))
            // In tables of posts and comments, posts have a title.
            || self.title.text().is_none()
                && (has_parent() || replied_to.iter().any(|name| name.word().is_some()))
            || self.address().is_some_and(|name| name.is_comment())
    }

    /// Returns the fullname in the permalink.
    fn address(&self) -> Option<Fullname> {
        let link = self.permalink.str().filter(|link| link.contains('/'))?;
        Fullname::from_url(link).ok()
    }

    /// Returns what a comment replies to; nothing for a post. Some files have ids without their prefix.
    pub(crate) fn reply(&self) -> Reply {
        fn name(field: &Field) -> Option<&str> {
            field.str().map(str::trim).filter(|name| !is_null(name))
        }
        if !self.is_comment() {
            return Reply::default();
        }
        let path = self.permalink.str().unwrap_or_default();
        let of_path = || path.split("/comments/").nth(1)?.split('/').next();
        let post = name(&self.link_id).or_else(of_path);
        let post = post.and_then(|post| post.parse().ok());
        let post = post.filter(|post: &Fullname| !post.is_comment());
        let parent = [&self.parent_id, &self.parent].into_iter().find_map(name);
        let parent = parent.and_then(|parent| {
            let named: Fullname = parent.parse().ok()?;
            let is_bare = !parent.contains('_') && post.as_ref() != Some(&named);
            if is_bare {
                Fullname::of(ThingKind::Comment, parent).ok()
            } else {
                Some(named)
            }
        });
        Reply {
            post,
            parent,
            is_submitter: self.is_submitter.flag(),
        }
    }

    /// Returns a thing's data, or the fields themselves if they are not in a thing.
    pub(super) fn into_post(self) -> Result<Self, RejectReason> {
        match (self.data, self.kind.str()) {
            (data @ Field::Missing, _) | (data, None) => Ok(Self { data, ..self }),
            (Field::Object(data), Some("t1" | "t3")) => Ok(Self {
                kind: self.kind,
                ..*data
            }),
            (_, Some(kind @ ("t1" | "t3"))) => Err(format!("a `{kind}` without its data").into()),
            (_, Some(kind)) => {
                let kind: String = kind.chars().take(20).collect();
                Err(format!("a thing of kind `{kind}`, not a post").into())
            }
        }
    }

    /// Returns the fullname. Dumps from some years lack `name`, and some files have only the address of the post.
    pub(crate) fn fullname(&self) -> Result<Fullname, RejectReason> {
        // In tables, `name` may be any name.
        let is_fullname = |name: &String| name.as_bytes().get(2) == Some(&b'_');
        let name = self.name.word();
        let name = name.filter(|name| is_fullname(name) || self.id.is_null());
        let Some(name) = name.or_else(|| self.id.id()) else {
            let url = self.url.str().filter(|url| url.contains('/'));
            let url = url.and_then(|url| Fullname::from_url(url).ok());
            // A post may link to a comment.
            let url = url.filter(|name| name.is_comment() == self.is_comment());
            let found = self.address().or(url);
            return found.ok_or_else(|| "neither `name` nor `id`".into());
        };
        let is_bare = !name.contains(['_', '/']);
        let named = match name.as_str() {
            id if is_bare && self.is_comment() => Fullname::of(ThingKind::Comment, id),
            name => Fullname::from_url(name),
        };
        // With a wrong `--map`, the value may be any text, so the message omits it.
        named.map_err(|_: FullnameError| {
            "`id` is not an id, which is `t3_` or `t1_` and a base-36 number".into()
        })
    }

    /// Returns the reason if the post was deleted or removed: by Reddit's category, by the archive's `_meta`, or
    /// because its text is a placeholder.
    pub(crate) fn removal(&self) -> Option<PurgeReason> {
        let placeholder = [&self.selftext, &self.body, &self.title]
            .into_iter()
            .filter_map(Field::str)
            .find(|text| is_placeholder(text));
        let category = match self.meta.object().filter(|meta| meta.is_gone()) {
            // An archive does not always know the type.
            Some(meta) => Some(meta.removal_type.word().unwrap_or_default()),
            None => self.removed_by_category.word(),
        };
        match (category.as_deref().map(str::trim), placeholder) {
            (None, None) => None,
            (Some("deleted" | "author"), _) => Some(PurgeReason::Deleted),
            (None, Some(text)) if text.contains("deleted") => Some(PurgeReason::Deleted),
            // The post was removed by moderators, their filters, or Reddit itself. New categories appear now and then,
            // and all mean that the post is not shown.
            (Some(_), _) | (None, Some(_)) => Some(PurgeReason::Removed),
        }
    }

    /// Returns true if these are the fields of `_meta` for a post that was gone when the archive last read it. A post
    /// that was gone only at first is shown again.
    fn is_gone(&self) -> bool {
        let was = |flag: &Field| flag.flag() == Some(true);
        was(&self.was_deleted_later)
            || self.removal_type.word().is_some() && !was(&self.was_initially_deleted)
    }

    pub(crate) fn created_at(&self) -> Result<Timestamp, RejectReason> {
        match &self.created_utc {
            Field::Missing => Err("no `created_utc`".into()),
            field => time_of_post(field.value().unwrap_or(&Value::Null)),
        }
    }

    /// If the row lacks the time when the archive read the post, sets it to the upper bound `now`, in seconds since
    /// 1970.
    pub(crate) fn set_retrieved_by(&mut self, now: i64) {
        if !self.retrieved_utc.is_present() && !self.retrieved_on.is_present() {
            self.retrieved_on = Field::Value(now.into());
        }
    }

    /// Returns the post that a crosspost shows, as Reddit includes it.
    pub(crate) fn shown(&self) -> Option<&Self> {
        self.crosspost_parent_list.object()
    }

    /// Returns the posts that a crosspost shows. The first one is the post whose text it shows: for a crosspost of a
    /// crosspost, the original.
    pub(crate) fn shown_names(&self, own: &Fullname) -> impl Iterator<Item = Fullname> {
        let shown = self.shown();
        [
            shown.and_then(|shown| shown.crosspost_parent.word()),
            self.crosspost_parent.word(),
            shown.and_then(|shown| shown.name.word().or_else(|| shown.id.id())),
        ]
        .into_iter()
        .flatten()
        .filter_map(|name| Fullname::from_url(&name).ok())
        // An invalid row may name the post itself.
        .filter(move |name| name != own && !name.is_comment())
    }
}
