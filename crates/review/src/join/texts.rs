//! Joins gold labels with the stored output of a model, for [`calibrate`](crate::calibrate::calibrate) and
//! [`fit`](crate::fit::fit_label_set).

use std::collections::{BTreeSet, HashMap};

use crate::calibrate::GoldEvidence;
use crate::gold::GoldPost;
use crate::rescore::{Rescorer, TextEvidence};
use topicmill_core::{Fullname, TextHash, TextVector};
use topicmill_store::{Store, StoreError};

/// A post with gold labels, and the stored output of a model for its text.
#[derive(Debug, Clone)]
pub struct GoldText {
    /// Fullname of the post.
    pub post: Fullname,
    /// The gold labels, and the logits under the label set to calibrate or fit.
    pub gold: GoldEvidence,
    /// The text's vector, if the model is an embedding model.
    pub vector: Option<TextVector>,
    /// True if the post was sampled at random, or counts as such.
    pub is_random: bool,
}

/// Gold posts with the stored output of a model.
#[derive(Debug, Clone)]
pub struct GoldTexts {
    /// The posts, ordered by fullname.
    pub texts: Vec<GoldText>,
    /// Number of gold posts that are not in the database.
    pub unknown: usize,
    /// Number of gold posts without complete output of the model.
    pub unscored: usize,
}

/// Joins gold posts with the output that `rescorer` has for their texts. `random` contains the posts sampled at random;
/// `None` if all posts are representative.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn gold_texts(
    store: &Store,
    rescorer: Option<&Rescorer<'_>>,
    gold: Vec<GoldPost>,
    random: Option<&BTreeSet<Fullname>>,
) -> Result<GoldTexts, StoreError> {
    let names: Vec<Fullname> = gold.iter().map(|post| post.id.clone()).collect();
    let hashes = store.posts().text_hashes(&names).await?;
    let hashes: HashMap<Fullname, TextHash> = hashes.into_iter().collect();
    let known = match rescorer {
        Some(rescorer) => {
            let wanted = hashes.values().copied().collect();
            rescorer.zero_shot(store, wanted).await?
        }
        None => HashMap::new(),
    };
    let text = |post: GoldPost| {
        let text_hash = *hashes.get(&post.id)?;
        let TextEvidence { evidence, vector } = known.get(&text_hash)?.clone();
        Some(GoldText {
            gold: GoldEvidence {
                text_hash,
                evidence,
                ties: post.ties_in(0),
                right: post.right.into_iter().next()?,
                weight: 1.0,
            },
            vector,
            is_random: random.is_none_or(|random| random.contains(&post.id)),
            post: post.id,
        })
    };
    let texts: Vec<GoldText> = gold.into_iter().filter_map(text).collect();
    Ok(GoldTexts {
        unknown: names.len() - hashes.len(),
        unscored: hashes.len() - texts.len(),
        texts,
    })
}
