//! Two models in a row: for each text a small one picks the labels that are worth the large one's time.
//!
//! The small model puts the labels of a text in order, and the large one scores the first of them. Labels that were left out get
//! a score of 0. The outcome is not what the large model alone would say, so a cascade has a name and a hash of its
//! own, under which its results are stored.

use sha2::{Digest, Sha256};

use crate::folder::{ModelFolder, hex};
use crate::labeler::{Labeler, LabelerError, Pair, Pairs, Prepared, TextError};
use crate::labels::LabelSet;
use crate::score;

/// A model, and the small one that picks labels for it, if any. Its parts may work at the same time, on threads of
/// their own.
pub struct Cascade {
    /// Scores.
    pub large: Labeler,
    /// Picks what is scored.
    pub small: Option<Shortlist>,
}

impl From<Labeler> for Cascade {
    fn from(large: Labeler) -> Self {
        Self { large, small: None }
    }
}

impl Cascade {
    /// Name of the model for people, and a hash of all that decides its scores.
    pub fn identity(&self) -> (String, String) {
        let small = self.small.as_ref();
        let small = small.map(|small| (small.labeler.folder(), small.labels));
        identity_of(self.large.folder(), small)
    }

    /// How many labels of a set of so many are scored.
    pub fn scored_labels(&self, labels: usize) -> usize {
        let small = self.small.as_ref();
        small.map_or(labels, |small| small.picked_of(labels))
    }
}

/// A small model, and how many labels it picks.
pub struct Shortlist {
    labeler: Labeler,
    labels: usize,
}

/// The places of the labels of a text in their set, and of the background after the last of them, the best first.
pub type Order = Vec<usize>;

impl Shortlist {
    /// Puts a model and a number of labels, 1 or more, together.
    pub fn new(labeler: Labeler, labels: usize) -> Self {
        Self {
            labeler,
            labels: labels.max(1),
        }
    }

    /// How many labels it picks out of so many.
    pub fn picked_of(&self, labels: usize) -> usize {
        self.labels.min(labels)
    }

    /// Makes a label set ready for [`order`](Self::order).
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<Prepared, LabelerError> {
        self.labeler.prepare(set)
    }

    /// The order of the labels of each text; `None` where `stop` said so on the way.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn order(
        &mut self,
        prepared: &Prepared,
        texts: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<Order, TextError>>>, LabelerError> {
        let kind = self.labeler.folder().kind.clone();
        let results = self.labeler.score_all(prepared, texts, stop)?;
        let order = |result: super::TextResult| {
            let logits: Vec<_> = result.logits.into_iter().flatten().collect();
            score::evidence_beside(&kind, prepared.mode(), &logits, prepared.prior()).order()
        };
        let orders = |results: Vec<Result<_, _>>| {
            let orders = results.into_iter().map(|result| result.map(order));
            orders.collect()
        };
        Ok(results.map(orders))
    }

    /// The pairs of a text of which nothing is known yet, of a set of so many labels.
    pub fn pairs(&self, order: &[usize], labels: usize, large: &Prepared) -> Pairs {
        let mut pairs = vec![Pair::Wanted; large.keys().len()];
        self.leave_out(&mut pairs, order, labels);
        pairs
    }

    /// Leaves out of a text's pairs the labels that are not among the first of an order, and the background where that
    /// many labels come before it.
    pub fn leave_out(&self, pairs: &mut Pairs, order: &[usize], labels: usize) {
        let mut picked = 0;
        let mut background = false;
        for place in order {
            if *place < labels {
                picked += 1;
                if picked > self.labels {
                    pairs[*place] = Pair::LeftOut;
                }
            } else {
                background = picked < self.labels;
            }
        }
        // The two models may read different topics of it, and one of them none.
        if let Some(pair) = pairs.get_mut(labels)
            && order.len() > labels
            && !background
        {
            *pair = Pair::LeftOut;
        }
    }

    /// What a large model with this shortlist is called.
    pub fn name_with(&self, large: &str) -> String {
        name_with(large, &self.labeler.folder().name, self.labels)
    }

    /// A hash of all that decides the scores of a large model with this shortlist, given the large model's.
    pub fn hash_with(&self, large: &str) -> String {
        hash_with(large, &self.labeler.folder().manifest_hash, self.labels)
    }
}

fn name_with(large: &str, small: &str, labels: usize) -> String {
    format!("{large}+shortlist-{labels}-{small}")
}

fn hash_with(large: &str, small: &str, labels: usize) -> String {
    let parts = format!("shortlist\n{large}\n{small}\n{labels}\n");
    hex(&Sha256::digest(parts))
}

/// What [`Cascade::identity`] says of models in these folders, without loading them. `small`: the model that picks labels,
/// and how many.
pub fn identity_of(large: &ModelFolder, small: Option<(&ModelFolder, usize)>) -> (String, String) {
    match small {
        Some((small, labels)) => (
            name_with(&large.name, &small.name, labels),
            hash_with(&large.manifest_hash, &small.manifest_hash, labels),
        ),
        None => (large.name.clone(), large.manifest_hash.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::{EmbeddingHead, ModelKind};
    use crate::scripted::{Scripted, nli_folder, set};

    fn shortlist(kind: Option<ModelKind>, labels: usize) -> Shortlist {
        let mut folder = nli_folder();
        folder.kind = kind.unwrap_or(folder.kind);
        let labeler = Labeler::load(folder, Box::new(Scripted::default()), 4096).unwrap();
        Shortlist::new(labeler, labels)
    }

    #[test]
    fn both_kinds_of_model_order_labels_as_they_score_them() {
        let embedding = ModelKind::Embedding(EmbeddingHead {
            output: "v".into(),
            softmax_scale: 1.0,
            sigmoid_scale: 1.0,
            sigmoid_bias: 0.0,
        });
        let set = set(&["food", "music", "travel", "chess"]);
        let texts: Vec<String> = (0..20).map(|i| format!("post {i}")).collect();
        for kind in [None, Some(embedding)] {
            let mut small = shortlist(kind, 2);
            let prepared = small.prepare(&set).unwrap();
            let orders = small.order(&prepared, &texts, &|| false).unwrap().unwrap();
            let results = small.labeler.score_all(&prepared, &texts, &|| false);
            for (text, result) in results.unwrap().unwrap().into_iter().enumerate() {
                let scores = result.unwrap().scores;
                let order = orders[text].as_ref().unwrap();
                assert_eq!(order[0], scores.best);
                let sorted = order.iter().map(|label| scores.scores[*label]);
                assert!(sorted.is_sorted_by(|a, b| a >= b), "{text}");
            }
            assert!(
                small.order(&prepared, &texts, &|| true).unwrap().is_none(),
                "a stop is heard"
            );
        }
    }

    #[test]
    fn only_the_first_of_an_order_stay() {
        let mut small = shortlist(None, 2);
        let prepared = small.prepare(&set(&["a", "b", "c", "d"])).unwrap();
        let pairs = small.pairs(&[3, 1, 0, 2], 4, &prepared);
        let out = Pair::LeftOut;
        assert_eq!(pairs, [out, Pair::Wanted, out, Pair::Wanted]);
        // The background is scored beside as many labels as ever, unless all of them come before it.
        for (order, beside) in [
            ([4, 3, 1, 0, 2], true),
            ([3, 4, 1, 0, 2], true),
            ([3, 1, 4, 0, 2], false),
        ] {
            let mut pairs = vec![Pair::Wanted; 5];
            small.leave_out(&mut pairs, &order, 4);
            let background = if beside { Pair::Wanted } else { out };
            assert_eq!(pairs, [out, Pair::Wanted, out, Pair::Wanted, background]);
        }
    }

    #[test]
    fn a_cascade_is_a_model_of_its_own() {
        let identity = |large: &str, small: &str, labels: usize| {
            let labeler = |hash: &str| {
                let mut folder = nli_folder();
                folder.manifest_hash = hash.into();
                Labeler::load(folder, Box::new(Scripted::default()), 4096).unwrap()
            };
            let small = Some(Shortlist::new(labeler(small), labels));
            let large = labeler(large);
            Cascade { large, small }.identity()
        };
        let (name, hash) = identity("large", "small", 2);
        assert_eq!(
            name,
            "minilm-reddit-topics+shortlist-2-minilm-reddit-topics"
        );
        for (large, small, labels) in [
            ("large", "small", 3),
            ("other", "small", 2),
            ("large", "other", 2),
        ] {
            assert_ne!(identity(large, small, labels).1, hash);
        }
        let alone =
            Cascade::from(Labeler::load(nli_folder(), Box::new(Scripted::default()), 1).unwrap());
        assert_eq!(alone.identity().1, nli_folder().manifest_hash);
    }
}
