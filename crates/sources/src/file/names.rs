//! Finds the fields of posts and comments in files of other tools, which use different names.
//!
//! Names are compared without case and separators: `Created_UTC`, `createdUtc` and `created utc` are the same. A name
//! that `--map` gives takes precedence over the field's own name, and that over the names that other tools use.

use std::fmt;

use serde_json::Value;

use crate::post::Fields;

/// The post fields that a file can contain.
pub const FIELDS: [&str; 18] = [
    "id",
    "name",
    "title",
    "selftext",
    "subreddit",
    "permalink",
    "created_utc",
    "url",
    "author",
    "score",
    "upvote_ratio",
    "num_comments",
    "link_flair_text",
    "over_18",
    "is_self",
    "removed_by_category",
    "crosspost_parent",
    "topic",
];

/// Fields that only comments have, or that distinguish them from posts.
pub(super) const KINDS: [&str; 5] = ["kind", "parent", "parent_id", "link_id", "is_submitter"];

/// The names that other tools use for a field. Of a field's names, the first that a file has is read.
const ALIASES: [(&str, &str); 14] = [
    ("kind", "datatype"),
    ("link_id", "threadid submission submissionid postid"),
    ("id", "postid submissionid redditid parsedid"),
    ("title", "posttitle submissiontitle subject"),
    (
        "selftext",
        "body text posttext postbody content description",
    ),
    (
        "subreddit",
        "parsedcommunityname communityname subredditname",
    ),
    ("permalink", "fulllink link posturl postlink threadurl"),
    (
        "created_utc",
        "unixtimestamp createdat created timestamp dateutc datetime date dateposted",
    ),
    ("author", "username userposted"),
    ("score", "upvotes ups numupvotes"),
    ("upvote_ratio", "upratio"),
    (
        "num_comments",
        "commsnum numberofcomments commentcount comments",
    ),
    ("link_flair_text", "flair postflair"),
    ("over_18", "nsfw"),
];

/// A tool whose files are recognised.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    /// Names that together are in no other tool's files.
    names: &'static [&'static str],
    /// True if dates start with the month.
    month_first: bool,
}

/// Layouts: <https://github.com/digitalmethodsinitiative/4cat>, <https://github.com/Watchful1/PushshiftDumps>,
/// <https://github.com/ivan-rivera/RedditExtractor>, <https://github.com/JosephLai241/URS>,
/// <https://github.com/Serene-Arc/bulk-downloader-for-reddit>, <https://apify.com/trudax/reddit-scraper>.
const TOOLS: [Tool; 7] = [
    Tool::new("4CAT", &["threadid", "subject", "timestamp", "body"]),
    Tool::new("PushshiftDumps", &["author", "created", "link", "text"]),
    Tool::new("RedditExtractoR", &["dateutc", "text", "comments", "url"]),
    Tool::new("RedditExtractoR", &["upratio", "crossposts", "text"]),
    Tool {
        month_first: true,
        ..Tool::new("URS", &["isoriginalcontent", "nsfw", "spoiler"])
    },
    Tool::new("BDFR", &["pinned", "locked", "distinguished", "comments"]),
    Tool::new("Apify", &["parsedcommunityname"]),
];

impl Tool {
    const fn new(name: &'static str, names: &'static [&'static str]) -> Self {
        Self {
            name,
            names,
            month_first: false,
        }
    }

    /// Returns the tool whose files have these [keys](key).
    fn with_keys(keys: &[String]) -> Option<&'static Self> {
        let has = |name: &&str| keys.iter().any(|key| key == name);
        TOOLS.iter().find(|tool| tool.names.iter().all(has))
    }
}

/// The column for a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// One of [`FIELDS`].
    pub field: &'static str,
    /// The column's name in the file; in JSON, a name such as `user.name` reads `name` of the object `user`.
    pub name: String,
}

/// The tool that made a file, and the fields that have other names in it.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    tool: Option<&'static Tool>,
    renamed: Vec<(&'static str, String)>,
    /// Fields of a JSON record that `--map` found.
    pub(super) mapped: Vec<&'static str>,
}

impl Layout {
    pub(super) fn add(&mut self, field: &'static str, column: &str) {
        if field != column && !KINDS.contains(&field) {
            self.renamed.push((field, column.to_owned()));
        }
    }

    /// Returns true if all fields have their own names and the tool is unknown.
    pub fn is_plain(&self) -> bool {
        self.tool.is_none() && self.renamed.is_empty()
    }

    /// Changes a time to a form that does not depend on the tool.
    pub(super) fn normalise(&self, field: &str, value: Value) -> Value {
        let month_first = self.tool.is_some_and(|tool| tool.month_first);
        match value.as_str() {
            Some(text) if month_first && field == "created_utc" => {
                year_first(text).map_or(value, Value::String)
            }
            _ => value,
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renaming = |(field, column): &(&str, String)| format!("`{column}` as `{field}`");
        let renamed: Vec<String> = self.renamed.iter().map(renaming).collect();
        let renamed = renamed.join(", ");
        match self.tool {
            Some(tool) if renamed.is_empty() => write!(f, "reading a file of {}", tool.name),
            Some(tool) => write!(f, "reading a file of {}: {renamed}", tool.name),
            None => write!(f, "reading {renamed}"),
        }
    }
}

/// Changes `01-15-2023 08:30:00` to `2023-01-15 08:30:00`.
fn year_first(text: &str) -> Option<String> {
    let (month, rest) = text.trim().split_once('-')?;
    let (day, rest) = rest.split_once('-')?;
    let year = rest.get(..4).filter(|_| month.len() <= 2)?;
    Some(format!("{year}-{month}-{day}{}", &rest[4..]))
}

/// Returns a name in lower case without separators, and without the prefix that pandas' `json_normalize` adds.
fn key(name: &str) -> String {
    let name = name.strip_prefix("data.").unwrap_or(name);
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// The names of a file's columns, or of a record's members.
pub(super) struct Names<'a> {
    names: Vec<&'a str>,
    keys: Vec<String>,
}

impl<'a> Names<'a> {
    pub(super) fn new(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let keys = names.iter().map(|name| key(name)).collect();
        Self { names, keys }
    }

    /// Returns the layout of a file with these names, without any fields.
    pub(super) fn layout(&self) -> Layout {
        Layout {
            tool: Tool::with_keys(&self.keys),
            ..Layout::default()
        }
    }

    /// Returns the index of a field's name among those that `is_free` accepts.
    pub(super) fn find(&self, field: &str, is_free: impl Fn(usize) -> bool) -> Option<usize> {
        let free = || (0..self.names.len()).filter(|index| is_free(*index));
        let by_key = |key: &str| free().find(|index| self.keys[*index] == key);
        let aliases = || ALIASES.iter().find(|(known, _)| *known == field);
        free()
            .find(|index| self.names[*index] == field)
            .or_else(|| by_key(&key(field)))
            .or_else(|| aliases()?.1.split(' ').find_map(by_key))
    }
}

/// Sets the mapped fields, and those that a record lacks, from members with other names. Returns the layout of the
/// record. The tool that made an earlier record of the file, if any, made this one too.
pub(super) fn fill(
    fields: &mut Fields,
    record: &Value,
    mapping: &[Column],
    earlier: Option<&Layout>,
) -> Layout {
    let members = record.as_object().into_iter().flatten();
    let names = Names::new(members.map(|(name, _)| name.as_str()));
    let mut layout = names.layout();
    layout.tool = layout.tool.or(earlier.and_then(|layout| layout.tool));
    let scalar = |value: &Value| (!value.is_object() && !value.is_array()).then(|| value.clone());
    for field in FIELDS.into_iter().chain(KINDS) {
        let value = if let Some(column) = mapping.iter().find(|column| column.field == field) {
            let value = record.get(&column.name).or_else(|| {
                let path = format!("/{}", column.name.replace('.', "/"));
                record.pointer(&path)
            });
            if value.is_some() {
                layout.mapped.push(field);
            }
            value.and_then(scalar).unwrap_or_default()
        } else {
            let is_free = |index: usize| {
                let name = names.names[index];
                let is_mapped = mapping.iter().any(|column| column.name == name);
                !is_mapped && scalar(&record[name]).is_some()
            };
            // An object or an array of the field's own name has been read already.
            let Some(index) = names
                .find(field, is_free)
                .filter(|_| !fields.is_object(field))
            else {
                continue;
            };
            let name = names.names[index];
            layout.add(field, name);
            record[name].clone()
        };
        fields.set(field, layout.normalise(field, value));
    }
    layout
}
