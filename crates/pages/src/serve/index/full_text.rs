//! A full-text index of posts, in an in-memory SQLite FTS5 table.
//!
//! It is in memory because an index in a file would have to be purged along with its posts, and an index in the
//! database would slow down every import. It works the same for both databases and needs no migration.

use std::collections::VecDeque;
use std::sync::Arc;

use rusqlite::{Connection, params};

/// Maximum number of cached searches; paging repeats the same search.
const SEARCHES: usize = 32;
/// Maximum number of bytes indexed for each string: far more than Reddit's limit of 40,000 characters.
const BYTES: usize = 200_000;
/// The table definition. Emoji and other symbols count as words. The text is not stored (`content=''`) but can be
/// deleted (`contentless_delete`). `remove_diacritics 2` also handles letters with two marks.
const TABLE: &str = "CREATE VIRTUAL TABLE words USING fts5(title, body, content='', contentless_delete=1, \
     tokenize = \"unicode61 remove_diacritics 2 categories 'L* N* Co So Sk'\")";

/// The FTS5 table, and a cache of searches that is cleared on changes.
pub struct FullTextIndex {
    table: Connection,
    searches: VecDeque<(String, Arc<Vec<i64>>)>,
}

impl FullTextIndex {
    /// Creates an empty index.
    pub fn new() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory()?;
        // Rollback is not needed, and text must not be written to disk.
        connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA temp_store = MEMORY;")?;
        connection.execute_batch(TABLE)?;
        Ok(Self {
            table: connection,
            searches: VecDeque::new(),
        })
    }

    /// Inserts or replaces the text for posts, as (key, title, body).
    pub fn upsert(&mut self, mut texts: Vec<(i64, String, String)>) -> rusqlite::Result<()> {
        // Keys in ascending order go into one segment.
        texts.sort_unstable_by_key(|(key, ..)| *key);
        self.searches.clear();
        let tx = self.table.transaction()?;
        {
            let mut insert =
                tx.prepare("INSERT OR REPLACE INTO words (rowid, title, body) VALUES (?, ?, ?)")?;
            for (key, title, body) in &texts {
                insert.execute(params![key, head(title), head(body)])?;
            }
        }
        tx.commit()
    }

    /// Removes the text for posts.
    pub fn remove(&mut self, keys: &[i64]) -> rusqlite::Result<()> {
        self.searches.clear();
        let tx = self.table.transaction()?;
        {
            let mut delete = tx.prepare("DELETE FROM words WHERE rowid = ?")?;
            for key in keys {
                delete.execute([key])?;
            }
        }
        tx.commit()
    }

    /// Returns the keys of up to `limit` matching posts, newest first.
    pub fn find(&mut self, search: &str, limit: usize) -> rusqlite::Result<Arc<Vec<i64>>> {
        let Some(query) = query(search) else {
            return Ok(Arc::default());
        };
        if let Some((_, found)) = self.searches.iter().find(|(known, _)| known == search) {
            return Ok(Arc::clone(found));
        }
        let mut select = self
            .table
            .prepare("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?")?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let keys = select.query_map(params![query, limit], |row| row.get(0))?;
        let found: Arc<Vec<i64>> = Arc::new(keys.collect::<rusqlite::Result<_>>()?);
        self.searches.truncate(SEARCHES - 1);
        self.searches
            .push_front((search.to_owned(), Arc::clone(&found)));
        Ok(found)
    }
}

fn head(text: &str) -> &str {
    &text[..text.floor_char_boundary(BYTES)]
}

/// Translates a search to an FTS5 query. All words must match, `"…"` is a phrase, `word*` is a prefix, and `-word`
/// excludes posts. Everything else is quoted, so FTS5 operators have no effect.
fn query(search: &str) -> Option<String> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut rest = search.trim_start();
    while !rest.is_empty() {
        let unwanted = rest.len() > 1 && rest.starts_with('-');
        rest = if unwanted { &rest[1..] } else { rest };
        let (text, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        let quoted = rest.starts_with('"');
        let is_start = !quoted && text.ends_with('*');
        rest = behind.trim_start();
        // A phrase without tokens would match nothing.
        if text.chars().any(is_token_char) {
            let star = if is_start { "*" } else { "" };
            let phrase = format!("\"{}\"{star}", text.replace(['"', '\0'], " "));
            if unwanted { &mut without } else { &mut with }.push(phrase);
        }
    }
    if with.is_empty() {
        return None;
    }
    let mut query = with.join(" AND ");
    for phrase in without {
        query = format!("({query}) NOT {phrase}");
    }
    Some(query)
}

/// Returns true if a search has at least one word.
pub fn has_words(search: &str) -> bool {
    query(search).is_some()
}

/// Returns true for characters that the tokenizer keeps, approximately: letters, digits and non-ASCII symbols.
fn is_token_char(c: char) -> bool {
    c.is_alphanumeric()
        || (!c.is_ascii() && !c.is_whitespace() && !c.is_control() && !is_punctuation(c))
}

/// Returns true for Latin-1, general and CJK punctuation.
fn is_punctuation(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{bf}' | '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{ff00}'..='\u{ff0f}')
}
