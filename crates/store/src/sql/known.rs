//! Posts as they are stored, looked at before and after a page is: what of them is another now.

use std::collections::HashMap;
use std::sync::LazyLock;

use sqlx::{AssertSqlSafe, Row as _, Transaction};

use super::super::Result;
use super::super::bulk::Insert;
use super::super::dialect::Dialect;
use super::arriving::{Row, insert_posts, names};
use super::{Doing, SqlStore};

/// A block of a file has more posts than this, and a page of a listing fewer. So many new rows are inserted apart from
/// those that are known, in a form that refuses one that is stored.
pub(super) const MANY: usize = 200;

/// Columns that do not describe the post itself, or that the text hash covers.
const BESIDE: &str =
    "fullname title selftext source text_hash collected_at updated_at removed_at checked_at";

/// All else that is stored of a post, as one text; no address and no name has a line break.
static CONTENT: LazyLock<String> = LazyLock::new(|| {
    let columns = insert_posts(&[]).columns;
    let columns = columns.iter().map(|(column, _)| *column);
    // Made from the columns of the INSERT, so that a new column counts as content without a second list.
    let content = columns.filter(|column| !BESIDE.split(' ').any(|beside| beside == *column));
    let texts = content
        // When a post was removed does not change what it says; that it was removed does.
        .chain(["removed_at IS NULL"])
        .map(|column| format!("COALESCE(CAST(({column}) AS TEXT), '')"));
    texts.collect::<Vec<_>>().join(" || '\n' || ")
});

/// The columns of a [`Known`] post, behind its name.
static KNOWN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "fullname, CASE WHEN text_purged_at IS NULL THEN text_hash END, source, {}",
        *CONTENT
    )
});

/// Inserts posts, and returns each that it wrote as a [`Known`] one.
pub(super) fn insert_and_return<'a>(rows: &[&'a Row<'a>]) -> Insert<'a> {
    static ON_CONFLICT: LazyLock<String> =
        LazyLock::new(|| format!("{} RETURNING {}", insert_posts(&[]).on_conflict, *KNOWN));
    Insert {
        on_conflict: &ON_CONFLICT,
        ..insert_posts(rows)
    }
}

/// A post that is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// Hash of its text; `None` where retention took that.
    pub text_hash: Option<Vec<u8>>,
    /// Its last source.
    pub source: String,
    /// See [`CONTENT`].
    content: String,
}

impl Known {
    /// True if the stored post has changed.
    pub fn differs(&self, now: &Self) -> bool {
        now.content != self.content || now.text_hash != self.text_hash
    }
}

impl<DB: Dialect> SqlStore<DB> {
    /// Selects and locks the rows among `fullnames` that are already stored, ordered by fullname to avoid deadlocks. Of
    /// many, one index lookup may show that none is stored; not if the server has just rejected a new one as a
    /// duplicate.
    pub(super) async fn known_among(
        tx: &mut Transaction<'static, DB>,
        fullnames: &[&str],
        may_look: bool,
    ) -> Result<HashMap<String, Known>> {
        if may_look
            && fullnames.len() >= MANY
            && let [first, .., last] = fullnames
            && Self::all_new(tx, first, last).await?
        {
            return Ok(HashMap::new());
        }
        Self::known_posts(tx, fullnames.iter().copied()).await
    }

    /// True if none of many posts is stored, as far as one index lookup can tell: in a dump that is read in the order
    /// of its ids, no stored post is between the first and the last of a block.
    ///
    /// If the server's collation differs from the order of bytes, the lookup may miss one. The server then rejects it
    /// as a duplicate.
    async fn all_new(tx: &mut Transaction<'static, DB>, first: &str, last: &str) -> Result<bool> {
        // Not `BETWEEN`, of which a plan for any two names expects to meet a row early in the table, and would read all
        // of it.
        let next = sqlx::query_scalar::<DB, String>(
            "SELECT fullname FROM posts WHERE fullname >= $1 ORDER BY fullname LIMIT 1",
        )
        .bind(first)
        .fetch_optional(&mut **tx)
        .await
        .doing("look for posts that are known")?;
        Ok(next.is_none_or(|next| next.as_str() > last))
    }

    /// Selects and locks the posts that are stored.
    pub(super) async fn known_posts(
        tx: &mut Transaction<'static, DB>,
        fullnames: impl Iterator<Item = &str>,
    ) -> Result<HashMap<String, Known>> {
        let known = format!(
            "SELECT {} FROM posts WHERE fullname IN {} ORDER BY fullname {}",
            *KNOWN,
            DB::AMONG,
            DB::LOCK_POSTS
        );
        sqlx::query::<DB>(AssertSqlSafe(known))
            .bind(names(fullnames))
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(Self::known_post).collect())
            .doing("look up known posts")
    }

    /// A row of [`KNOWN`] columns.
    pub(super) fn known_post(row: &DB::Row) -> Result<(String, Known), sqlx::Error> {
        let known = Known {
            text_hash: row.try_get(1)?,
            source: row.try_get(2)?,
            content: row.try_get(3)?,
        };
        Ok((row.try_get(0)?, known))
    }
}
