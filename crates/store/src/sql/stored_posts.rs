//! Reads stored posts before and after an upsert, to determine which have changed.

use std::collections::HashMap;
use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, Row as _};

use super::post_rows::{ON_KNOWN_POST, json_array, posts_insert};
use super::{ErrorContext, SqlStore, Tx};
use crate::Result;
use crate::bulk::Keys;
use crate::dialect::Dialect;

/// Minimum number of new rows to insert in bulk, by a method that fails for existing keys. Blocks read from files are
/// larger than this, and listing pages are smaller.
pub(super) const BULK_ROWS: usize = 200;

/// An attempt to store rows, some of which may be new.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Inserts many new rows in bulk, which fails with a duplicate key if another writer stores one of them at the same
    /// time.
    First,
    /// Inserts nothing in bulk, because other writers may store more of the rows in the meantime.
    AfterDuplicateKey,
}

/// Columns that are not part of the post's content, or are covered by the text hash.
const NOT_CONTENT: &str = "fullname title selftext source text_hash collected_at updated_at removed_at checked_at \
                           archive_checked_at";

/// SQL for all other columns as one string, separated by line breaks, which these columns do not contain.
static CONTENT: LazyLock<String> = LazyLock::new(|| {
    // The columns of the INSERT include new ones.
    let texts: Vec<String> = posts_insert(&[], Keys::New)
        .columns
        .iter()
        .map(|(column, _)| *column)
        .filter(|column| !NOT_CONTENT.split(' ').any(|other| other == *column))
        // A removal is a change. The time of the removal is not.
        .chain(["removed_at IS NULL"])
        .map(|column| format!("COALESCE(CAST(({column}) AS TEXT), '')"))
        .collect();
    texts.join(" || '\n' || ")
});

/// SQL for the columns of a [`StoredPost`], after its fullname.
static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "fullname, CASE WHEN text_purged_at IS NULL THEN text_hash END, source, {}",
        *CONTENT
    )
});

/// The clause of an upsert of posts that returns them as [`StoredPost`]s.
pub(super) static RETURNING: LazyLock<String> =
    LazyLock::new(|| format!("{} RETURNING {}", *ON_KNOWN_POST, *COLUMNS));

/// A stored post.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StoredPost {
    /// Hash of its text; `None` if retention deleted it.
    pub text_hash: Option<Vec<u8>>,
    /// The source that it came from.
    pub source: String,
    /// See [`CONTENT`].
    content: String,
}

impl StoredPost {
    /// Returns true if the post has changed.
    pub fn has_changed(&self, now: &Self) -> bool {
        now.content != self.content || now.text_hash != self.text_hash
    }
}

impl<DB: Dialect> SqlStore<DB> {
    /// Selects and locks the rows among `fullnames` that are already stored, ordered by fullname to avoid deadlocks.
    /// The first attempt to store many posts only does that if an index lookup finds a stored post between the first
    /// and the last of them.
    pub(super) async fn stored_among(
        tx: &mut Tx<DB>,
        fullnames: &[&str],
        attempt: Attempt,
    ) -> Result<HashMap<String, StoredPost>> {
        if attempt == Attempt::First
            && fullnames.len() >= BULK_ROWS
            && let [first, .., last] = fullnames
            && Self::all_new(tx, first, last).await?
        {
            return Ok(HashMap::new());
        }
        Self::stored_posts(tx, fullnames.iter().copied()).await
    }

    /// Returns true if one index lookup finds no stored post from the first to the last id of a block. This detects new
    /// posts in a dump that is ordered by id.
    ///
    /// If the server's collation differs from byte order, the lookup may miss a post. The insert then fails with a
    /// duplicate key.
    async fn all_new(tx: &mut Tx<DB>, first: &str, last: &str) -> Result<bool> {
        // A generic plan for `BETWEEN` would read the whole table.
        let next = sqlx::query_scalar::<DB, String>(
            "SELECT fullname FROM things WHERE fullname >= $1 ORDER BY fullname LIMIT 1",
        )
        .bind(first)
        .fetch_optional(&mut **tx)
        .await
        .context("look for posts that are known")?;
        Ok(next.is_none_or(|next| next.as_str() > last))
    }

    /// Selects and locks the given posts that are stored.
    pub(super) async fn stored_posts(
        tx: &mut Tx<DB>,
        fullnames: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, StoredPost>> {
        let known = format!(
            "SELECT {} FROM things WHERE fullname IN {} ORDER BY fullname {}",
            *COLUMNS,
            DB::IN_JSON_ARRAY,
            DB::LOCK_POSTS
        );
        sqlx::query::<DB>(AssertSqlSafe(known))
            .bind(json_array(fullnames))
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(Self::stored_post).collect())
            .context("look up known posts")
    }

    /// Decodes a row of [`COLUMNS`].
    pub(super) fn stored_post(row: &DB::Row) -> Result<(String, StoredPost), sqlx::Error> {
        let known = StoredPost {
            text_hash: row.try_get(1)?,
            source: row.try_get(2)?,
            content: row.try_get(3)?,
        };
        Ok((row.try_get(0)?, known))
    }
}
