//! Checks the integrity of a database: the database's own checks, and what only topicmill knows.
//!
//! The checks only read. Each finding has a meaning and a remedy.

use serde::Serialize;
use sqlx::AssertSqlSafe;
use topicmill_core::reddit::{TEXT_RULE, thing_text};
use topicmill_core::{Fullname, TextHash};

use super::dialect::Dialect;
use super::driver_error::ErrorContext;
use super::sql::{SqlStore, TEXTS};
use super::{Result, StoreError};

const WHAT: &str = "check the database";
/// Maximum number of displayed messages from the database's own checks.
const SHOWN: usize = 5;
/// Posts read at once.
const POSTS: i64 = 2_000;

/// Something wrong in a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Number of rows or messages.
    pub count: u64,
    /// Its meaning.
    pub meaning: String,
    /// Advice for the user.
    pub remedy: &'static str,
}

/// Progress callback: the name of the next check.
pub type OnCheck<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// A count that must be 0. In the SQL, `{scores}` stands for the number of scores in a row of `packed_scores`.
struct Count {
    check: &'static str,
    sql: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}

const RELABEL: &str =
    "delete these posts' rows in `classifications`; `topicmill classify` recomputes them";

const COUNTS: [Count; 9] = [
    Count {
        check: "labels without scores",
        sql: "SELECT COUNT(*) FROM classifications c WHERE NOT EXISTS (SELECT 1 FROM packed_scores s \
               WHERE s.model_id = c.model_id AND s.label_set_id = c.label_set_id AND s.fullname = c.fullname)",
        meaning: "posts have a label, but not the scores that it was computed from",
        remedy: RELABEL,
    },
    Count {
        check: "number of scores",
        sql: "SELECT COUNT(*) FROM packed_scores s \
               WHERE {scores} <> (SELECT COUNT(*) FROM labels l WHERE l.label_set_id = s.label_set_id)",
        meaning: "posts have more or fewer scores than their label set has labels",
        remedy: RELABEL,
    },
    Count {
        check: "unknown labels",
        sql: "SELECT COUNT(*) FROM classifications c WHERE NOT EXISTS ( \
               SELECT 1 FROM labels l WHERE l.label_set_id = c.label_set_id AND l.label = c.label)",
        meaning: "posts have a label that is not in their label set",
        remedy: RELABEL,
    },
    Count {
        check: "counted labels",
        sql: "SELECT COUNT(*) FROM classifications c JOIN things p ON p.fullname = c.fullname \
               WHERE c.day IS NOT NULL AND (p.text_hash <> c.text_hash OR p.topic IS DISTINCT FROM c.topic)",
        meaning: "`topic_daily` and `topic_agreement` count labels of an outdated text or topic",
        remedy: "run `UPDATE classifications SET day = NULL`; the views then read the posts",
    },
    Count {
        check: "purged posts",
        sql: "SELECT COUNT(*) FROM things p JOIN tombstones t ON t.fullname = p.fullname",
        meaning: "purged posts are stored",
        remedy: "write their ids to a file (`topicmill sql 'SELECT fullname FROM things JOIN tombstones USING \
                 (fullname)'`) and run `topicmill purge --ids FILE`",
    },
    Count {
        check: "texts after retention",
        sql: "SELECT COUNT(*) FROM things WHERE text_purged_at IS NOT NULL \
               AND (title <> '' OR selftext <> '' OR url IS NOT NULL OR author IS NOT NULL)",
        meaning: "posts still have text that retention deleted",
        remedy: "write their ids to a file and run `topicmill purge --ids FILE`",
    },
    Count {
        check: "logits without a text",
        // Uses EXCEPT, because no index on posts is ordered by text hash.
        sql: "SELECT COUNT(*) FROM pair_logits \
               WHERE text_hash IN (SELECT text_hash FROM pair_logits EXCEPT SELECT text_hash FROM things)",
        meaning: "logits are stored for texts that no post has",
        remedy: "delete these rows from `pair_logits`; nothing reads them",
    },
    Count {
        check: "vectors without a text",
        sql: "SELECT COUNT(*) FROM text_vectors WHERE text_hash IN ( \
               SELECT text_hash FROM text_vectors EXCEPT SELECT text_hash FROM things \
                WHERE text_purged_at IS NULL OR EXISTS (SELECT 1 FROM meta WHERE key = 'vectors_kept'))",
        meaning: "vectors are stored for texts that no post has, or that retention deleted",
        remedy: "delete these rows from `text_vectors`, because a vector reveals what a text was about",
    },
    Count {
        check: "lengths of vectors",
        sql: "SELECT COUNT(*) FROM (SELECT model_id FROM text_vectors GROUP BY model_id \
                                    HAVING MIN(length(vector)) <> MAX(length(vector))) AS models",
        meaning: "models have vectors of several lengths",
        remedy: "run `topicmill model drop`, then `topicmill classify`, which computes the vectors again",
    },
];

impl<DB: Dialect> SqlStore<DB> {
    /// Runs all checks and returns the findings.
    pub async fn check(&self, progress: OnCheck<'_>) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        progress("the database");
        let messages = self.own_problems().await?;
        let shown = messages[..messages.len().min(SHOWN)].join("; ");
        findings.push(Finding {
            check: "the database",
            count: messages.len() as u64,
            meaning: format!("its own checks found it damaged: {shown}"),
            remedy: DB::REPAIR_ADVICE,
        });
        for count in &COUNTS {
            progress(count.check);
            let sql = AssertSqlSafe(count.sql.replace("{scores}", DB::NUMBER_OF_SCORES));
            findings.push(Finding {
                check: count.check,
                count: self.number(sql, WHAT).await?.unsigned_abs(),
                meaning: count.meaning.to_owned(),
                remedy: count.remedy,
            });
        }
        progress("hashes of texts");
        findings.push(Finding {
            check: "hashes of texts",
            count: self.count_wrong_hashes().await?,
            meaning: "the text of posts was changed by another program".to_owned(),
            remedy: "collect or import these posts again",
        });
        progress("versions of label sets");
        let changed = self.changed_label_sets().await?;
        let names = changed.join(", ");
        findings.push(Finding {
            check: "versions of label sets",
            count: changed.len() as u64,
            meaning: format!("label sets were changed by another program: {names}"),
            remedy: "restore a backup, or drop them with `topicmill labels drop` and label again; stored logits are \
                     reused",
        });
        findings.retain(|finding| finding.count > 0);
        Ok(findings)
    }

    /// Returns the messages of the database's own checks.
    async fn own_problems(&self) -> Result<Vec<String>> {
        let strings = |sql| sqlx::query_scalar::<DB, String>(sql).fetch_all(&self.pool);
        let mut messages = strings(DB::INTEGRITY).await.context(WHAT)?;
        for check in strings(DB::DEEP_CHECKS).await.context(WHAT)? {
            let checked = sqlx::query::<DB>(AssertSqlSafe(check)).execute(&self.pool);
            match checked.await.context(WHAT) {
                // Only superusers and users with the EXECUTE privilege on this function may run it.
                Ok(_) | Err(StoreError::Denied(_)) => {}
                Err(StoreError::Statement { source, .. })
                    if source.as_database_error().is_some() =>
                {
                    messages.push(source.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(messages)
    }

    /// Returns the names of the label sets whose version is not the hash of their content.
    async fn changed_label_sets(&self) -> Result<Vec<String>> {
        let mut changed = Vec::new();
        for row in self.label_sets().await? {
            match self.label_set(row.id).await {
                Ok(set) if set.hash() == row.hash => {}
                Ok(_) | Err(StoreError::Corrupt { .. }) => changed.push(row.name),
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }

    /// Counts the posts whose text does not have the stored hash. Returns 0 if the next run recomputes the hashes.
    async fn count_wrong_hashes(&self) -> Result<u64> {
        if self.meta("text_rule").await? != Some(TEXT_RULE.to_string()) {
            return Ok(0);
        }
        let (mut wrong, mut after) = (0, String::new());
        loop {
            let rows: Vec<(Fullname, Vec<u8>, String, String)> = sqlx::query_as::<DB, _>(TEXTS)
                .bind(after)
                .bind(POSTS)
                .fetch_all(&self.pool)
                .await
                .context(WHAT)?;
            let Some((last, ..)) = rows.last() else {
                return Ok(wrong);
            };
            after = last.to_string();
            for (fullname, stored, title, selftext) in rows {
                let hash = TextHash::new(&thing_text(&fullname, &title, &selftext));
                wrong += u64::from(stored != hash.as_bytes());
            }
        }
    }
}
