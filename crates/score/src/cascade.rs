//! Two models in a row: a small one looks at each text first and spares the large one work.
//!
//! As a *shortlist*, the small model puts the labels of a text in order, and the large one scores the first of them. Labels
//! that were left out get a score of 0. As a *cascade by certainty*, the small model labels the texts of which it is sure
//! enough, and only the others go to the large one. Both may be asked for at once. The outcome is not what the large
//! model alone would say, so two models in a row have a name and a hash of their own, under which their results are stored.

use sha2::{Digest, Sha256};

use crate::folder::{ModelFolder, hex};
use crate::labeler::{Labeler, LabelerError, Pair, Pairs, Prepared, TextError};
use crate::labels::{LabelSet, Mode};
use crate::score::{self, Evidence, Outcome, Scores};

/// A model, and the small one before it, if any. Its parts may work at the same time, on threads of their own.
pub struct Cascade {
    /// Scores.
    pub large: Labeler,
    /// Looks at each text first.
    pub small: Option<SmallModel>,
}

impl From<Labeler> for Cascade {
    fn from(large: Labeler) -> Self {
        Self { large, small: None }
    }
}

impl Cascade {
    /// Name of the model for people, and a hash of all that decides its scores.
    pub fn identity(&self) -> (String, String) {
        let large = self.large.folder();
        let Some(SmallModel { labeler, task }) = &self.small else {
            return (large.name.clone(), large.manifest_hash.clone());
        };
        let small = labeler.folder();
        (
            task.name(&large.name, small),
            task.hash(&large.manifest_hash, small),
        )
    }

    /// How many labels of a set of so many are scored.
    pub fn scored_labels(&self, labels: usize) -> usize {
        let small = self.small.as_ref();
        small.map_or(labels, |small| small.picked_of(labels))
    }
}

/// What a small model does for a large one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SmallTask {
    /// How many labels it picks, 1 or more; `None`: the large model scores all of them.
    pub shortlist: Option<usize>,
    /// Which texts it labels itself; `None`: the large model scores every text.
    pub keep: Option<Keep>,
}

impl SmallTask {
    fn shortlist(self) -> usize {
        self.shortlist.map_or(usize::MAX, |labels| labels.max(1))
    }

    fn name(self, large: &str, small: &ModelFolder) -> String {
        let mut parts = Vec::new();
        if let Some(Keep { least, temperature }) = self.keep {
            parts.push(format!("cascade-{least}"));
            if !is_one(temperature) {
                parts.push(format!("t{temperature}"));
            }
        }
        if self.shortlist.is_some() {
            parts.push(format!("shortlist-{}", self.shortlist()));
        }
        format!("{large}+{}-{}", parts.join("-"), small.name)
    }

    fn hash(self, large: &str, small: &ModelFolder) -> String {
        let hash = &small.manifest_hash;
        let labels = self.shortlist.map(|_| self.shortlist());
        let parts = match (self.keep, labels) {
            // As it was before there were cascades by certainty. Another form would give stored shortlists new hashes,
            // and every post would be labelled again.
            (None, labels) => format!(
                "shortlist\n{large}\n{hash}\n{}\n",
                labels.unwrap_or(usize::MAX)
            ),
            // What the small model keeps has its scores, so its precision counts, and how much of a text it reads.
            (Some(Keep { least, temperature }), labels) => format!(
                "cascade\n{large}\n{hash}\n{}\n{}\n{least}\n{temperature}\n{labels:?}\n",
                small.precision, small.max_tokens
            ),
        };
        hex(&Sha256::digest(parts))
    }
}

/// Which texts a small model labels itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keep {
    /// Those of which it is at least so sure, above 0 and up to 1: see [`certainty`].
    pub least: f64,
    /// What its logits are divided by before they become scores.
    pub temperature: f64,
}

/// How sure a model is of what it says of a text, 0 to 1: the score that it gives to the best label. In mode multi each label
/// is a question of its own, so every other label counts, too, with its score or what is missing of 1, whichever is
/// more; the least sure of them decides. `None` where the text gets no label, and for logits, which are no shares of 1.
pub fn certainty(mode: Mode, scores: &Scores) -> Option<f64> {
    if mode == Mode::Raw || scores.outcome() != Outcome::Label {
        return None;
    }
    let best = scores.scores[scores.best];
    if mode == Mode::Single {
        return Some(best);
    }
    let others = scores.scores.iter().enumerate();
    let others = others.filter(|(label, _)| *label != scores.best);
    let others = others
        .map(|(_, score)| *score)
        .chain(scores.other_score)
        .map(|score| score.max(1.0 - score));
    Some(others.fold(best, f64::min))
}

/// The places of the labels of a text in their set, and of the background after the last of them, the best first.
pub type Order = Vec<usize>;

/// What a small model says of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// Its scores, at the temperature of [`Keep`].
    pub scores: Scores,
    /// The order in which it puts the labels.
    pub order: Order,
}

/// What becomes of a text that a small model has looked at.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It has these scores: the large model has no say.
    Kept(Scores),
    /// The large model scores it; with the order of its labels.
    Sent(Order),
}

/// What [`SmallModel::glance`] answers for each text.
pub type Glances = Vec<Result<Glance, TextError>>;

/// A small model, and what it does.
pub struct SmallModel {
    labeler: Labeler,
    task: SmallTask,
}

impl SmallModel {
    /// Puts a model and a task together.
    pub fn new(labeler: Labeler, task: SmallTask) -> Self {
        Self { labeler, task }
    }

    /// The model.
    pub fn labeler(&self) -> &Labeler {
        &self.labeler
    }

    /// What it does.
    pub fn task(&self) -> SmallTask {
        self.task
    }

    /// How many labels it picks out of so many.
    pub fn picked_of(&self, labels: usize) -> usize {
        self.task.shortlist().min(labels)
    }

    /// Makes a label set ready for [`look`](Self::look).
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn prepare(&mut self, set: &LabelSet) -> Result<Prepared, LabelerError> {
        match self.task.keep {
            // Of a shortlist only the order counts, which no temperature changes.
            None => self.labeler.prepare(set),
            Some(Keep { temperature, .. }) => self.labeler.prepare(&LabelSet {
                temperature,
                ..set.clone()
            }),
        }
    }

    /// What it says of each text; `None` where `stop` said so on the way. `known` is what is known of the pairs of each
    /// text; empty where nothing is.
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn glance(
        &mut self,
        prepared: &Prepared,
        texts: &[String],
        known: &[Pairs],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Glances>, LabelerError> {
        let kind = self.labeler.folder().kind.clone();
        let results = self.labeler.score_knowing(prepared, texts, known, stop)?;
        let glance = |result: super::TextResult| {
            let logits: Vec<_> = result.logits.into_iter().flatten().collect();
            let evidence: Evidence =
                score::evidence_beside(&kind, prepared.mode(), &logits, prepared.prior());
            Glance {
                scores: result.scores,
                order: evidence.order(),
            }
        };
        let glances = |results: Vec<Result<_, _>>| {
            let glances = results.into_iter().map(|result| result.map(glance));
            glances.collect()
        };
        Ok(results.map(glances))
    }

    /// What becomes of each text; otherwise as [`glance`](Self::glance).
    ///
    /// # Errors
    /// See [`LabelerError`].
    pub fn look(
        &mut self,
        prepared: &Prepared,
        texts: &[String],
        known: &[Pairs],
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<Result<Verdict, TextError>>>, LabelerError> {
        let glances = self.glance(prepared, texts, known, stop)?;
        let verdict = |glance: Glance| self.verdict(prepared.mode(), glance);
        let verdicts = |glances: Glances| {
            let verdicts = glances.into_iter().map(|glance| glance.map(verdict));
            verdicts.collect()
        };
        Ok(glances.map(verdicts))
    }

    fn verdict(&self, mode: Mode, glance: Glance) -> Verdict {
        let sure = certainty(mode, &glance.scores);
        let keeps = |keep: Keep| sure.is_some_and(|sure| sure >= keep.least);
        if self.task.keep.is_some_and(keeps) {
            Verdict::Kept(glance.scores)
        } else {
            Verdict::Sent(glance.order)
        }
    }

    /// The pairs of a text of which nothing is known yet, of a set of so many labels.
    pub fn pairs(&self, order: &[usize], labels: usize, large: &Prepared) -> Pairs {
        let mut pairs = vec![Pair::Wanted; large.keys().len()];
        self.leave_out(&mut pairs, order, labels);
        pairs
    }

    /// Leaves out of a text's pairs the labels that are not among the first of an order, and the background where that
    /// many labels come before it. Without a shortlist nothing is left out.
    pub fn leave_out(&self, pairs: &mut Pairs, order: &[usize], labels: usize) {
        if self.task.shortlist.is_some() {
            leave_out(pairs, order, labels, self.task.shortlist());
        }
    }

    /// What a large model with this small one is called.
    pub fn name_with(&self, large: &str) -> String {
        self.task.name(large, self.labeler.folder())
    }

    /// A hash of all that decides the scores of a large model with this small one, given the large model's.
    pub fn hash_with(&self, large: &str) -> String {
        self.task.hash(large, self.labeler.folder())
    }
}

/// Leaves out of a text's pairs all labels but the first `most` of an order, and the background where that many labels come
/// before it.
pub fn leave_out(pairs: &mut Pairs, order: &[usize], labels: usize, most: usize) {
    let mut picked = 0;
    let mut background = false;
    for place in order {
        if *place < labels {
            picked += 1;
            if picked > most {
                pairs[*place] = Pair::LeftOut;
            }
        } else {
            background = picked < most;
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

#[expect(clippy::float_cmp, reason = "1 is written as 1")]
fn is_one(temperature: f64) -> bool {
    temperature == 1.0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::folder::{EmbeddingHead, ModelKind};
    use crate::scripted::{Scripted, nli_folder, set};

    fn of(labels: usize) -> SmallTask {
        SmallTask {
            shortlist: Some(labels),
            keep: None,
        }
    }

    fn shortlist(kind: Option<ModelKind>, labels: usize) -> SmallModel {
        let mut folder = nli_folder();
        folder.kind = kind.unwrap_or(folder.kind);
        let labeler = Labeler::load(folder, Box::new(Scripted::default()), 4096).unwrap();
        SmallModel::new(labeler, of(labels))
    }

    #[test]
    fn both_kinds_of_model_order_labels_as_they_score_them() {
        let embedding = ModelKind::Embedding(EmbeddingHead {
            output: "v".into(),
            softmax_scale: 1.0,
            sigmoid_scale: 1.0,
            sigmoid_bias: 0.0,
            learned: Arc::default(),
        });
        let set = set(&["food", "music", "travel", "chess"]);
        let texts: Vec<String> = (0..20).map(|i| format!("post {i}")).collect();
        for kind in [None, Some(embedding)] {
            let mut small = shortlist(kind, 2);
            let prepared = small.prepare(&set).unwrap();
            let looked = small.look(&prepared, &texts, &[], &|| false);
            let verdicts = looked.unwrap().unwrap();
            let results = small.labeler.score_all(&prepared, &texts, &|| false);
            for (text, result) in results.unwrap().unwrap().into_iter().enumerate() {
                let scores = result.unwrap().scores;
                let Ok(Verdict::Sent(order)) = &verdicts[text] else {
                    panic!("a shortlist keeps no text: {text}");
                };
                assert_eq!(order[0], scores.best);
                let sorted = order.iter().map(|label| scores.scores[*label]);
                assert!(sorted.is_sorted_by(|a, b| a >= b), "{text}");
            }
            let stopped = small.look(&prepared, &texts, &[], &|| true).unwrap();
            assert!(stopped.is_none(), "a stop is heard");
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
            let small = Some(SmallModel::new(labeler(small), of(labels)));
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

    /// A small model that keeps what it is so sure of.
    fn keeping(least: f64, temperature: f64, shortlist: Option<usize>) -> SmallModel {
        let labeler = Labeler::load(nli_folder(), Box::new(Scripted::default()), 4096).unwrap();
        let keep = Some(Keep { least, temperature });
        SmallModel::new(labeler, SmallTask { shortlist, keep })
    }

    #[test]
    fn a_text_is_kept_where_the_small_model_is_sure_of_a_label() {
        let texts: Vec<String> = (0..60).map(|i| format!("post {i}")).collect();
        let mut with_background = set(&["chess", "travel", "news"]);
        with_background.background = Some(crate::scripted::background());
        with_background.threshold = 0.3;
        let multi = LabelSet {
            mode: Mode::Multi,
            ..set(&["food", "music", "travel"])
        };
        for set in [set(&["food", "music", "travel"]), with_background, multi] {
            let (mut kept, mut last) = (Vec::new(), 0);
            for least in [0.01, 0.5, 0.9, 1.0] {
                let mut small = keeping(least, 2.5, None);
                let prepared = small.prepare(&set).unwrap();
                let looked = small.look(&prepared, &texts, &[], &|| false);
                let verdicts = looked.unwrap().unwrap();
                // The same scores as the model gives by itself at this temperature.
                let warm = LabelSet {
                    temperature: 2.5,
                    ..set.clone()
                };
                let mut alone = keeping(least, 1.0, None).labeler;
                let ready = alone.prepare(&warm).unwrap();
                let results = alone.score_all(&ready, &texts, &|| false).unwrap();
                let mut count = 0;
                for (verdict, result) in verdicts.iter().zip(results.unwrap()) {
                    let scores = result.unwrap().scores;
                    let sure = certainty(set.mode, &scores).is_some_and(|sure| sure >= least);
                    match verdict.as_ref().unwrap() {
                        Verdict::Kept(of_small) => {
                            assert!(sure && *of_small == scores);
                            assert_eq!(of_small.outcome(), Outcome::Label);
                            count += 1;
                        }
                        Verdict::Sent(_) => assert!(!sure),
                    }
                }
                kept.push(count);
                last = count;
            }
            assert!(
                kept.is_sorted_by(|a, b| a >= b) && kept[0] > last,
                "{kept:?}"
            );
        }
    }

    #[test]
    fn in_multi_mode_the_least_sure_label_decides() {
        let scores = |scores: &[f64], other_score: Option<f64>| Scores {
            scores: scores.to_vec(),
            best: 0,
            margin: 0.0,
            abstained: false,
            other: false,
            other_score,
        };
        let sure = |mode, scores: &Scores| certainty(mode, scores).unwrap();
        let one = scores(&[0.9, 0.3, 0.05], None);
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        close(sure(Mode::Single, &one), 0.9);
        close(sure(Mode::Multi, &one), 0.7);
        close(sure(Mode::Multi, &scores(&[0.9, 0.95, 0.05], None)), 0.9);
        close(sure(Mode::Multi, &scores(&[0.99, 0.01], Some(0.4))), 0.6);
        close(sure(Mode::Multi, &scores(&[0.2, 0.01], None)), 0.2);
        assert_eq!(certainty(Mode::Raw, &one), None);
        for none in [
            Scores {
                abstained: true,
                ..one.clone()
            },
            Scores {
                abstained: true,
                other: true,
                ..one.clone()
            },
        ] {
            assert_eq!(certainty(Mode::Single, &none), None);
        }
    }

    #[test]
    fn all_that_decides_a_cascade_is_in_its_name_and_in_its_hash() {
        let name = |small: &SmallModel| small.name_with("large");
        let minilm = "minilm-reddit-topics";
        let cascade = keeping(0.9, 1.0, None);
        assert_eq!(name(&cascade), format!("large+cascade-0.9-{minilm}"));
        let all = keeping(0.9, 2.5, Some(4));
        let both = format!("large+cascade-0.9-t2.5-shortlist-4-{minilm}");
        assert_eq!(name(&all), both);
        let mut int8 = nli_folder();
        int8.precision = "int8".into();
        let int8 = Labeler::load(int8, Box::new(Scripted::default()), 4096).unwrap();
        let others = [
            all,
            keeping(0.9, 1.0, Some(4)),
            keeping(0.9, 2.5, None),
            keeping(0.91, 1.0, None),
            shortlist(None, 4),
            SmallModel::new(int8, cascade.task()),
        ];
        let mut hashes: Vec<String> = others.iter().map(|one| one.hash_with("large")).collect();
        hashes.push(cascade.hash_with("large"));
        hashes.push(cascade.hash_with("other"));
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 8);
        // Labels that were stored with a shortlist before there were cascades are found under this hash.
        let stored = crate::folder::hex(&Sha256::digest(format!(
            "shortlist\nlarge\n{}\n4\n",
            nli_folder().manifest_hash
        )));
        assert_eq!(shortlist(None, 4).hash_with("large"), stored);
    }
}
