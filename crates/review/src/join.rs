//! Gold posts and what one labelling or several say of them, side by side: from the store into what
//! [`evaluate`](super::evaluate::evaluate) takes. Posts that some labelling has no valid label for are left out, and
//! counted by the reason.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use super::evaluate::EvaluatedPost;
use super::gold::{GoldPost, GoldRow};
use topicmill_core::Fullname;
use topicmill_score::LabelSet;
use topicmill_store::{LabelState, LookedUp, Prediction, Store, StoreError, Target};

const WINDOW: u32 = 10_000;
/// Ids that are shown of posts that are not there.
const EXAMPLES: usize = 5;

#[derive(Debug)]
pub struct Labelling<'a> {
    pub set: &'a LabelSet,
    /// Under which target labels are stored.
    pub stored: Option<Target>,
    /// For posts that have no stored label of their present text, labels that are not stored, by fullname.
    pub computed: HashMap<Fullname, Prediction>,
}

/// A gold post that every labelling labels.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinedPost {
    pub id: Fullname,
    pub title: String,
    /// The words for its right labels, as the gold labels have them.
    pub gold: String,
}

/// Gold posts that cannot be judged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub unknown: usize,
    /// How many of them were purged.
    pub purged: u64,
    pub examples: Vec<String>,
    /// In the database, and their text was purged.
    pub without_text: usize,
    pub edited: usize,
    pub unlabelled: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct JoinedGold {
    /// The posts that are judged, by fullname.
    pub posts: Vec<JoinedPost>,
    /// For each labelling the same posts, in the same order.
    pub rows: Vec<Vec<EvaluatedPost>>,
    pub left_out: LeftOut,
}

impl JoinedGold {
    /// The same of some of the posts.
    #[must_use]
    pub fn restricted_to(&self, wanted: &BTreeSet<Fullname>) -> Self {
        let places: Vec<usize> = (0..self.posts.len())
            .filter(|place| wanted.contains(&self.posts[*place].id))
            .collect();
        let of =
            |rows: &Vec<EvaluatedPost>| places.iter().map(|place| rows[*place].clone()).collect();
        Self {
            posts: places
                .iter()
                .map(|place| self.posts[*place].clone())
                .collect(),
            rows: self.rows.iter().map(of).collect(),
            left_out: self.left_out.clone(),
        }
    }
}

/// Puts labellings beside gold posts, whose right labels are in the order of the labellings.
///
/// # Errors
/// When the database cannot be read: see [`StoreError`].
pub async fn join_gold(
    store: &Store,
    labellings: &[Labelling<'_>],
    gold: &[GoldPost],
) -> Result<JoinedGold, StoreError> {
    let names: Vec<Fullname> = gold.iter().map(|post| post.id.clone()).collect();
    let mut sides: Vec<HashMap<Fullname, LookedUp>> = Vec::new();
    for labelling in labellings {
        sides.push(looked_up(store, labelling, &names).await?);
    }
    let mut held = JoinedGold {
        rows: vec![Vec::with_capacity(gold.len()); labellings.len()],
        ..JoinedGold::default()
    };
    let mut unknown = Vec::new();
    for post in gold {
        let found: Option<Vec<&LookedUp>> = sides.iter().map(|side| side.get(&post.id)).collect();
        let Some(found) = found else {
            unknown.push(post.id.clone());
            continue;
        };
        let predictions: Result<Vec<&Prediction>, &LabelState> = found
            .iter()
            .map(|one| match &one.labelled {
                LabelState::As(prediction) => Ok(prediction),
                state => Err(state),
            })
            .collect();
        match predictions {
            Err(LabelState::WithoutText) => held.left_out.without_text += 1,
            Err(LabelState::BeforeAnEdit) => held.left_out.edited += 1,
            Err(_) => held.left_out.unlabelled += 1,
            Ok(predictions) => {
                held.posts.push(JoinedPost {
                    id: post.id.clone(),
                    title: found[0].title.clone(),
                    gold: post.words.join(", "),
                });
                for (side, prediction) in predictions.into_iter().enumerate() {
                    let row = judged(labellings[side].set, prediction, &post.right[side]);
                    held.rows[side].push(row);
                }
            }
        }
    }
    held.left_out.unknown = unknown.len();
    held.left_out.purged = store.purging().count_tombstones(&unknown).await?;
    let examples = unknown.iter().take(EXAMPLES);
    held.left_out.examples = examples.map(Fullname::to_string).collect();
    Ok(held)
}

async fn looked_up(
    store: &Store,
    labelling: &Labelling<'_>,
    names: &[Fullname],
) -> Result<HashMap<Fullname, LookedUp>, StoreError> {
    let mut posts = store.labels().look_up(labelling.stored, names).await?;
    for post in &mut posts {
        if let LabelState::Not | LabelState::BeforeAnEdit = post.labelled
            && let Some(made) = labelling.computed.get(&post.fullname)
        {
            post.labelled = LabelState::As(made.clone());
        }
    }
    let posts = posts.into_iter();
    Ok(posts.map(|post| (post.fullname.clone(), post)).collect())
}

/// A label that is none of the set's is none of these.
fn judged(set: &LabelSet, prediction: &Prediction, right: &[usize]) -> EvaluatedPost {
    let mut labels = set.labels.iter();
    let best = labels.position(|label| label.slug == prediction.label);
    EvaluatedPost {
        right: right.to_vec(),
        best: best.unwrap_or_default(),
        score: prediction.score,
        abstained: prediction.abstained || best.is_none(),
    }
}

/// The topics that posts were collected for, as if people had said that they are right.
///
/// # Errors
/// When the database cannot be read: see [`StoreError`].
pub async fn topics_as_gold(store: &Store) -> Result<Vec<GoldRow>, StoreError> {
    let mut rows: Vec<GoldRow> = Vec::new();
    let mut after = String::new();
    loop {
        let posts = store.posts().collected_for(&after, WINDOW).await?;
        let Some((last, _)) = posts.last() else {
            return Ok(rows);
        };
        after = last.to_string();
        for (id, label) in posts {
            rows.push(GoldRow::new(rows.len() as u64 + 1, id, label));
        }
    }
}
