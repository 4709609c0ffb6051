//! A small model before a large one: the small one puts the labels of each text in order, and the large one scores the first
//! of them.
//!
//! Labels that were left out get a score of 0. The outcome is not that of the large model alone, so both together have a
//! name and a hash of their own, under which their results are stored.

use sha2::{Digest, Sha256};

use crate::folder::hex;
use crate::labeler::{
    Labeler, LabelerError, PairState, Pairs, PreparedLabels, TextError, TextResult,
};
use crate::labels::LabelSet;
use crate::score;

/// A model, and the small one that picks labels for it, if any. Both may work at the same time, on threads of their own.
pub struct Models {
    /// Scores.
    pub large: Labeler,
    /// Picks the labels that are scored.
    pub small: Option<Shortlist>,
}

impl From<Labeler> for Models {
    fn from(large: Labeler) -> Self {
        Self { large, small: None }
    }
}

impl Models {
    /// The display name, and a hash of all that decides the scores.
    pub fn identity(&self) -> (String, String) {
        let large = self.large.folder();
        let Some(Shortlist { labeler, labels }) = &self.small else {
            return (large.name.clone(), large.manifest_hash.clone());
        };
        let small = labeler.folder();
        let name = format!("{}+shortlist-{labels}-{}", large.name, small.name);
        let (large, small) = (&large.manifest_hash, &small.manifest_hash);
        let parts = format!("shortlist\n{large}\n{small}\n{labels}\n");
        (name, hex(&Sha256::digest(parts)))
    }

    /// How many labels of a set of so many are scored.
    pub fn scored_labels(&self, labels: usize) -> usize {
        let small = self.small.as_ref();
        small.map_or(labels, |small| small.labels.min(labels))
    }
}

/// The places of the labels of a text in their set, and of the background after the last of them, the best first.
pub type LabelOrder = Vec<usize>;

/// A small model, and how many labels it picks.
pub struct Shortlist {
    labeler: Labeler,
    labels: usize,
}

impl Shortlist {
    /// Picks so many labels, 1 or more.
    pub fn new(labeler: Labeler, labels: usize) -> Self {
        let labels = labels.max(1);
        Self { labeler, labels }
    }

    /// The model.
    pub fn labeler(&self) -> &Labeler {
        &self.labeler
    }

    /// How many labels it picks.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// Makes a label set ready for [`order`](Self::order).
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<PreparedLabels, LabelerError> {
        self.labeler.prepare(set)
    }

    /// The order in which it puts the labels of each text; `None` where `stop` said so on the way. `known` is what is known
    /// of the pairs of each text; empty where nothing is.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn order(
        &mut self,
        prepared: &PreparedLabels,
        texts: &[String],
        known: &[Pairs],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<LabelOrder, TextError>>>, LabelerError> {
        let results = self
            .labeler
            .score_with_known(prepared, texts, known, stop)?;
        let kind = &self.labeler.folder().kind;
        let order = |result: TextResult| {
            let logits: Vec<_> = result.logits.into_iter().flatten().collect();
            score::evidence_with_background(kind, prepared.mode(), &logits, prepared.prior())
                .order()
        };
        let orders = |results: Vec<Result<_, _>>| {
            let orders = results.into_iter().map(|result| result.map(order));
            orders.collect()
        };
        Ok(results.map(orders))
    }

    /// The pairs of a text of which nothing is known yet, of a set of so many labels.
    pub fn pairs(&self, order: &[usize], labels: usize, large: &PreparedLabels) -> Pairs {
        let mut pairs = vec![PairState::Wanted; large.keys().len()];
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
                    pairs[*place] = PairState::LeftOut;
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
            *pair = PairState::LeftOut;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ScriptedEngine, nli_folder, set};

    #[test]
    fn only_the_first_of_an_order_stay() {
        let labeler =
            Labeler::load(nli_folder(), Box::new(ScriptedEngine::default()), 4096).unwrap();
        let mut small = Shortlist::new(labeler, 2);
        let prepared = small.prepare(&set(&["a", "b", "c", "d"])).unwrap();
        let pairs = small.pairs(&[3, 1, 0, 2], 4, &prepared);
        let out = PairState::LeftOut;
        assert_eq!(pairs, [out, PairState::Wanted, out, PairState::Wanted]);
        // The background is scored beside as many labels as ever, unless all of them come before it.
        for (order, beside) in [
            ([4, 3, 1, 0, 2], true),
            ([3, 4, 1, 0, 2], true),
            ([3, 1, 4, 0, 2], false),
        ] {
            let mut pairs = vec![PairState::Wanted; 5];
            small.leave_out(&mut pairs, &order, 4);
            let background = if beside { PairState::Wanted } else { out };
            assert_eq!(
                pairs,
                [out, PairState::Wanted, out, PairState::Wanted, background]
            );
        }
    }
}
