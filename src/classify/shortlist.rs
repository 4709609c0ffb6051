//! The few labels of each text that are worth a large model's time, picked by a small one.
//!
//! In go texts and a label set; out comes for each text the order in which the small model puts the labels, of
//! which the first are scored by the large one. Those left out get a score of 0. What comes of it are not the
//! labels of the large model, so it is stored as another model's: see [`Shortlist::row`].

use sha2::{Digest, Sha256};

use super::labeler::{Ended, Labeler, LabelerError, Pair, Pairs, Prepared, TextError};
use super::score;
use crate::domain::{LabelSet, hex};
use crate::store::ModelRow;

/// A small model, and how many labels it picks.
pub struct Shortlist {
    labeler: Labeler,
    labels: usize,
}

/// The places of the labels of a text in their set, the best first.
pub type Order = Vec<usize>;

impl Shortlist {
    /// Puts a model and a number of labels, 1 or more, together.
    pub fn new(labeler: Labeler, labels: usize) -> Self {
        Self {
            labeler,
            labels: labels.max(1),
        }
    }

    /// How many labels are scored of a set of so many.
    pub fn of(&self, labels: usize) -> usize {
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
        let encoded = self.labeler.encoder().encode(texts)?;
        let mut orders = vec![Ok(Order::new()); texts.len()];
        let mut done = |text: usize, result: Result<super::TextResult, TextError>| {
            orders[text] = result.map(|result| {
                let logits: Vec<_> = result.logits.into_iter().flatten().collect();
                score::evidence(&kind, prepared.mode(), &logits).order()
            });
        };
        let ended = self
            .labeler
            .score(prepared, &encoded, &[], stop, &mut done)?;
        Ok((ended == Ended::Done).then_some(orders))
    }

    /// The pairs of a text of which nothing is known yet.
    pub fn pairs(&self, order: &[usize]) -> Pairs {
        let mut pairs = vec![Pair::Wanted; order.len()];
        self.leave_out(&mut pairs, order);
        pairs
    }

    /// Leaves out of a text's pairs what is not among the first of an order.
    pub fn leave_out(&self, pairs: &mut Pairs, order: &[usize]) {
        for label in order.iter().skip(self.labels) {
            pairs[*label] = Pair::LeftOut;
        }
    }

    /// A large model with this shortlist, as `models` has it: another model, so that its labels never mix with
    /// those of the large model alone, or with another shortlist's.
    pub fn row(&self, large: ModelRow) -> ModelRow {
        let small = &self.labeler.folder().name;
        ModelRow {
            name: format!("{}+shortlist-{}-{small}", large.name, self.labels),
            manifest_hash: self.hash(&large.manifest_hash),
            ..large
        }
    }

    /// A hash of all that decides the scores of a large model with this shortlist, given the large model's.
    pub fn hash(&self, large: &str) -> String {
        let small = &self.labeler.folder().manifest_hash;
        let parts = format!("shortlist\n{large}\n{small}\n{}\n", self.labels);
        hex(&Sha256::digest(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::backlog::model_row;
    use crate::classify::scripted::{Scripted, nli_folder, set};
    use crate::model_folder::{EmbeddingHead, ModelKind};

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
            let encoded = small.labeler.encoder().encode(&texts).unwrap();
            let labeler = &mut small.labeler;
            labeler
                .score(&prepared, &encoded, &[], &|| false, &mut |text, result| {
                    let scores = result.unwrap().scores;
                    let order = orders[text].as_ref().unwrap();
                    assert_eq!(order[0], scores.best);
                    let sorted = order.iter().map(|label| scores.scores[*label]);
                    assert!(sorted.is_sorted_by(|a, b| a >= b), "{text}");
                })
                .unwrap();
            assert!(
                small.order(&prepared, &texts, &|| true).unwrap().is_none(),
                "a stop is heard"
            );
        }
    }

    #[test]
    fn only_the_first_of_an_order_stay() {
        let pairs = shortlist(None, 2).pairs(&[3, 1, 0, 2]);
        let out = Pair::LeftOut;
        assert_eq!(pairs, [out, Pair::Wanted, out, Pair::Wanted]);
    }

    #[test]
    fn a_shortlist_is_a_model_of_its_own() {
        let large = || ModelRow {
            manifest_hash: "large".into(),
            ..model_row(&nli_folder())
        };
        let rows = [2, 3].map(|labels| shortlist(None, labels).row(large()));
        assert_ne!(rows[0].manifest_hash, rows[1].manifest_hash);
        let other = ModelRow {
            manifest_hash: "other".into(),
            ..large()
        };
        assert_ne!(
            shortlist(None, 2).row(other).manifest_hash,
            rows[0].manifest_hash
        );
        let mut another = shortlist(None, 2);
        another.labeler = {
            let mut folder = nli_folder();
            folder.manifest_hash = "another".into();
            Labeler::load(folder, Box::new(Scripted::default()), 1).unwrap()
        };
        assert_ne!(another.row(large()).manifest_hash, rows[0].manifest_hash);
        assert_eq!(
            rows[0].name,
            "minilm-reddit-topics+shortlist-2-minilm-reddit-topics"
        );
    }
}
