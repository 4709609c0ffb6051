//! The words of posts, in an FTS5 table that lies in memory.
//!
//! In memory, because what lies in a file must be taken out of it again when its post is purged, and because an index in the
//! database would make every import slower for whoever never searches. It is the same for both databases, needs no migration,
//! and goes with the process.

use std::collections::VecDeque;
use std::sync::Arc;

use rusqlite::{Connection, params};

/// Searches whose matches are kept: whoever turns pages searches for the same again.
const SEARCHES: usize = 32;
/// Bytes of a text that are searched: far more than Reddit's 40,000 characters.
const BYTES: usize = 200_000;
/// Emoji and other signs are words, too.
/// No copy of the texts is kept (`content=''`), and posts can be taken out all the same (`contentless_delete`). Of
/// letters with two marks, `remove_diacritics 1` would take none.
const TABLE: &str = "CREATE VIRTUAL TABLE words USING fts5(title, body, content='', contentless_delete=1, \
     tokenize = \"unicode61 remove_diacritics 2 categories 'L* N* Co So Sk'\")";

/// The table, and what was searched for since it was last changed, with its matches.
pub struct WordIndex {
    table: Connection,
    searches: VecDeque<(String, Arc<Vec<i64>>)>,
}

impl WordIndex {
    pub fn new() -> rusqlite::Result<Self> {
        let connection = Connection::open_in_memory()?;
        // Nothing is ever rolled back, and no text may reach a disk.
        connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA temp_store = MEMORY;")?;
        connection.execute_batch(TABLE)?;
        Ok(Self {
            table: connection,
            searches: VecDeque::new(),
        })
    }

    /// Adds texts under keys, or puts them in the place of what was there.
    pub fn put(&mut self, mut texts: Vec<(i64, String, String)>) -> rusqlite::Result<()> {
        // Keys that grow go into one segment of the index.
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

    /// Takes texts out.
    pub fn take(&mut self, keys: &[i64]) -> rusqlite::Result<()> {
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

    /// Keys of up to `limit` posts that match: those with the highest ids, which are the newest.
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

/// What people type as FTS5 reads it: every word must be there, `"…"` is words in a row, `*` behind a word stands for any
/// ending, and `-` before it for posts without it. All else is text, so that no operator of FTS5 has a meaning.
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
        // What the tokenizer takes for no word would match nothing.
        if text.chars().any(is_of_a_word) {
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

/// Whether a search has anything to look for.
pub fn has_words(search: &str) -> bool {
    query(search).is_some()
}

/// About what the tokenizer's categories say: letters, digits, and signs that are no ASCII.
fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric()
        || (!c.is_ascii() && !c.is_whitespace() && !c.is_control() && !is_punctuation(c))
}

/// General punctuation, and that of Chinese and Japanese.
fn is_punctuation(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{bf}' | '\u{2000}'..='\u{206f}' | '\u{3000}'..='\u{303f}' | '\u{fe00}'..='\u{fe0f}' | '\u{ff00}'..='\u{ff0f}')
}
