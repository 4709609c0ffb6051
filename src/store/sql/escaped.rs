//! Texts that earlier versions stored as archives and files have them, escaped for HTML, decoded once.
//!
//! Migration 14 marks them (`posts.is_escaped`). A mark goes in the transaction that decodes the text, and when the post
//! is stored again, so that no text is decoded twice, whatever dies in between.

use sqlx::{AssertSqlSafe, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::{Decoded, Result};
use super::arriving::names;
use super::{Doing, SqlStore};
use crate::domain::{TextHash, post_text, unescaped};

const WHAT: &str = "decode texts";

/// A post with a mark.
struct Marked {
    fullname: String,
    title: String,
    selftext: String,
    text_hash: Vec<u8>,
    is_labelled: bool,
}

impl<DB: Dialect> SqlStore<DB> {
    pub(in crate::store) async fn count_escaped(&self) -> Result<u64> {
        sqlx::query::<DB>("SELECT COUNT(*) FROM posts WHERE is_escaped")
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get::<i64, _>(0))
            .map(i64::unsigned_abs)
            .doing("count the texts to decode")
    }

    pub(in crate::store) async fn decode_texts(
        &self,
        after: &str,
        limit: u32,
        write: bool,
    ) -> Result<Decoded> {
        again!(self.try_decode_texts(after, limit, write))
    }

    async fn try_decode_texts(&self, after: &str, limit: u32, write: bool) -> Result<Decoded> {
        if !write {
            let mut connection = self.pool.acquire().await.doing(WHAT)?;
            // A dry run only counts, so it must not stop writers with a lock.
            let marked = Self::marked(&mut connection, after, limit, "").await?;
            return Ok(Self::decode(&marked).0);
        }
        let mut tx = self.begin().await?;
        // A purge beside this would still see the old text at our post, we would see it at its, and nobody would delete
        // what was computed for it.
        Self::lock_tombstones(&mut tx).await?;
        let marked = Self::marked(&mut tx, after, limit, DB::LOCK_POSTS).await?;
        let (done, changed) = Self::decode(&marked);
        Self::store_decoded(&mut tx, &changed).await?;
        // Also for texts without anything to decode: their marks go, too, and the next run does not read them
        // again.
        let clear = format!(
            "UPDATE posts SET is_escaped = FALSE WHERE fullname IN {}",
            DB::AMONG
        );
        sqlx::query::<DB>(AssertSqlSafe(clear))
            .bind(names(marked.iter().map(|post| post.fullname.as_str())))
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        Ok(done)
    }

    /// Some of the posts that have a mark, in the order of their key. Of those that retention took it only goes.
    async fn marked(
        connection: &mut DB::Connection,
        after: &str,
        limit: u32,
        lock: &str,
    ) -> Result<Vec<Marked>> {
        let select = format!(
            "SELECT fullname, title, selftext, text_hash, EXISTS ( \
               SELECT 1 FROM classifications c \
                WHERE c.model_id = (SELECT model_id FROM current_target) \
                  AND c.label_set_id = (SELECT label_set_id FROM current_target) \
                  AND c.fullname = posts.fullname AND c.text_hash = posts.text_hash) \
               FROM posts WHERE is_escaped AND fullname > $1 ORDER BY fullname LIMIT $2 {lock}"
        );
        let decode = |row: &DB::Row| -> Result<Marked, sqlx::Error> {
            Ok(Marked {
                fullname: row.try_get(0)?,
                title: row.try_get(1)?,
                selftext: row.try_get(2)?,
                text_hash: row.try_get(3)?,
                is_labelled: row.try_get(4)?,
            })
        };
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(after)
            .bind(i64::from(limit))
            .fetch_all(connection)
            .await
            .and_then(|rows| rows.iter().map(decode).collect())
            .doing(WHAT)
    }

    /// What becomes of the texts: those that are others afterwards, each with its post as it was.
    fn decode(marked: &[Marked]) -> (Decoded, Vec<(&Marked, String, String)>) {
        let decoded = marked.iter().map(|post| {
            let (title, selftext) = (unescaped(&post.title), unescaped(&post.selftext));
            (post, title.into_owned(), selftext.into_owned())
        });
        let changed: Vec<_> = decoded
            .filter(|(post, title, selftext)| *title != post.title || *selftext != post.selftext)
            .collect();
        let labelled = changed.iter().filter(|(post, ..)| post.is_labelled);
        let done = Decoded {
            last: marked.last().map(|post| post.fullname.clone()),
            posts: changed.len() as u64,
            labelled: labelled.count() as u64,
        };
        (done, changed)
    }

    async fn store_decoded(
        tx: &mut Transaction<'static, DB>,
        changed: &[(&Marked, String, String)],
    ) -> Result<()> {
        if changed.is_empty() {
            return Ok(());
        }
        for (post, title, selftext) in changed {
            let hash = TextHash::of(&post_text(title, selftext));
            sqlx::query::<DB>(
                "UPDATE posts SET title = $2, selftext = $3, text_hash = $4 WHERE fullname = $1",
            )
            .bind(post.fullname.as_str())
            .bind(title.as_str())
            .bind(selftext.as_str())
            .bind(hash.as_bytes())
            .execute(&mut **tx)
            .await
            .doing(WHAT)?;
            // The same words in another spelling: what people said of them stands.
            sqlx::query::<DB>(
                "UPDATE gold SET text_hash = $3 WHERE fullname = $1 AND text_hash = $2",
            )
            .bind(post.fullname.as_str())
            .bind(&post.text_hash[..])
            .bind(hash.as_bytes())
            .execute(&mut **tx)
            .await
            .doing(WHAT)?;
        }
        // As for an edit.
        if let Some(lock) = DB::LOCK_EDITS {
            let locked = sqlx::query::<DB>(lock).execute(&mut **tx).await;
            locked.doing("wait for others who edit posts")?;
        }
        let before: Vec<&[u8]> = changed
            .iter()
            .map(|(post, ..)| &post.text_hash[..])
            .collect();
        Self::forget_logits(tx, &before).await?;
        let edited: Vec<&str> = changed
            .iter()
            .map(|(post, ..)| post.fullname.as_str())
            .collect();
        Self::forgive_failures(tx, &edited).await
    }
}
