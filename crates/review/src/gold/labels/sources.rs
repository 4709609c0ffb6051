//! Reads gold labels from a file, from the topics of posts, and from annotators' answers.

use std::collections::BTreeSet;
use std::path::Path;

use super::GoldLabels;
use crate::gold::{GoldError, GoldRow, consensus, read_rows};
use topicmill_core::ThingKind;
use topicmill_store::{Store, StoreError};

/// Posts per page of a query.
const WINDOW: u32 = 10_000;

impl GoldLabels {
    /// Reads the topics that posts or comments were collected for.
    pub(super) async fn topics(store: &Store, kind: ThingKind) -> Result<Self, GoldError> {
        let rows = topic_rows(store, kind).await?;
        if rows.is_empty() {
            return Err(GoldError::Unusable(format!(
                "`--gold topic`: no {kind} in the database was collected for a topic; use a file with columns `id` and \
                 `label`"
            )));
        }
        let texts = match kind {
            ThingKind::Post => store.purging().count_posts_with_text().await?,
            ThingKind::Comment => 0,
        };
        let left_out = match texts.saturating_sub(rows.len() as u64) {
            0 => String::new(),
            none => format!(
                " Left out without a topic: {none} of {texts} posts, so these figures are not estimates for all posts."
            ),
        };
        Ok(Self {
            rows,
            caveat: Some(format!(
                "The gold labels are the topics that posts were collected for, not labels assigned by \
                 annotators.{left_out}"
            )),
            ..Self::default()
        })
    }

    /// Reads the gold labels in the database.
    pub(super) async fn answers(
        store: &Store,
        kind: ThingKind,
        decides: Option<&str>,
    ) -> Result<Self, GoldError> {
        let mut answers = store.gold().answers().await?;
        retain_kind(&mut answers, kind, |stored| stored.answer.fullname.kind())?;
        if let Some(name) = decides
            && !answers.is_empty()
            && answers.iter().all(|gold| gold.answer.annotator != name)
        {
            let annotators = answers.iter().map(|gold| &*gold.answer.annotator);
            let annotators: BTreeSet<&str> = annotators.collect();
            let annotators = annotators.into_iter().collect::<Vec<_>>().join(", ");
            return Err(GoldError::Unusable(format!(
                "--decides {name}: no gold label is from this annotator; the annotators are {annotators}"
            )));
        }
        let consensus = consensus(answers, decides);
        if consensus.undecided() > 0 {
            tracing::warn!(
                posts = consensus.undecided(),
                "annotators disagree about some posts, and neither a majority nor --decides NAME decides: proportions \
                 are given as bounds; `topicmill labels gold list` shows these posts"
            );
        }
        if consensus.before_an_edit > 0 {
            tracing::warn!(
                answers = consensus.before_an_edit,
                "gold labels of posts that have been edited since are left out"
            );
        }
        if consensus.rows.is_empty() {
            return Err(GoldError::Unusable(
                "`--gold db`: the database has no gold labels; collect some with `topicmill serve --review`, or import a \
                 file with `topicmill labels gold import FILE`"
                    .into(),
            ));
        }
        Ok(Self {
            rows: consensus.rows,
            drawn: consensus.random,
            has_close_calls: consensus.has_close_calls,
            offered: consensus.offered,
            annotators: consensus.annotators,
            ..Self::default()
        })
    }

    /// Reads the gold labels in a file.
    pub(super) fn table(path: &Path, kind: ThingKind) -> Result<Self, GoldError> {
        let mut rows = read_rows(path)?;
        retain_kind(&mut rows, kind, |row| row.id.kind())?;
        let annotators = rows.iter().filter_map(|row| row.annotator.clone());
        Ok(Self {
            annotators: annotators.collect(),
            rows,
            ..Self::default()
        })
    }
}

/// Leaves out the gold labels of things of another kind, with a warning.
///
/// # Errors
/// Returns [`GoldError::Unusable`] if nothing is left.
fn retain_kind<T>(
    labels: &mut Vec<T>,
    kind: ThingKind,
    kind_of: impl Fn(&T) -> ThingKind,
) -> Result<(), GoldError> {
    let all = labels.len();
    labels.retain(|label| kind_of(label) == kind);
    let left_out = all - labels.len();
    let advice = match kind {
        ThingKind::Post => "`labels evaluate --kind comments` reads those of comments",
        ThingKind::Comment => "people answer about comments on the page `/review?kind=comments`",
    };
    if left_out > 0 && labels.is_empty() {
        let why = format!("no gold label is of a {kind}; {advice}");
        return Err(GoldError::Unusable(why));
    }
    if left_out > 0 {
        tracing::warn!(left_out, "only gold labels of {kind}s are read; {advice}");
    }
    Ok(())
}

/// Returns a gold row for each post or comment that was collected for a topic; the label is the topic.
async fn topic_rows(store: &Store, kind: ThingKind) -> Result<Vec<GoldRow>, StoreError> {
    let mut rows: Vec<GoldRow> = Vec::new();
    let mut after = String::new();
    loop {
        let page = store.posts().collection_topics(&after, WINDOW).await?;
        let Some((last, _)) = page.last() else {
            return Ok(rows);
        };
        after = last.to_string();
        for (id, topic) in page.into_iter().filter(|(id, _)| id.kind() == kind) {
            rows.push(GoldRow::new(rows.len() as u64 + 1, id, topic));
        }
    }
}
