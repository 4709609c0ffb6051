//! Chooses the scale of the zero-shot logits and the penalty on the weights by cross-validation.

use ndarray::{Array1, Array2};

use super::problem::{Problem, STRENGTHS};
use super::{Answer, distinct_texts};
use crate::float;

/// Number of cross-validation folds.
pub(super) const FOLDS: usize = 5;
/// Factors of the zero-shot logits for a model with vectors. Cross-validation cannot tell finer steps apart.
const SCALES: [f64; 5] = [1.0, 0.75, 0.5, 0.25, 0.0];
/// Log-likelihood that a scale of 0 must gain to be chosen over a scale of 1. It keeps good words from being given up
/// by chance, and costs poor ones nothing.
const TRUST_IN_WORDS: f64 = 1.0;
/// Up to this many answers, cross-validation is repeated with different folds, because the result depends on the split.
const REPEATED_UP_TO: usize = 200;
/// Number of times that cross-validation is run for few answers.
const REPEATS: u64 = 3;

/// The logits of each answer, for each candidate: answers × classes.
type CandidateLogits = Vec<Array2<f64>>;

/// A scale of the zero-shot logits and a penalty on the weights.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub scale: f64,
    pub strength: f64,
}

/// Fits with all candidates to all but one fold of the answers, in one or more rounds with different folds.
pub(super) struct CrossValidation {
    candidates: Vec<Candidate>,
    rounds: Vec<Round>,
}

/// A division of the answers into folds.
struct Round {
    /// The fold of each answer.
    fold_of: Vec<usize>,
    /// The logits of each answer from fits to the other folds.
    logits: CandidateLogits,
    /// For each candidate, the log-likelihood of each answer.
    likelihoods: Vec<Array1<f64>>,
}

impl CrossValidation {
    /// Fits all candidates. `problem` contains the answers.
    pub(super) fn run(problem: &Problem, answers: &[Answer]) -> Self {
        // Without vectors, the scales are learned.
        let scales: &[f64] = if problem.vectors.is_empty() {
            &SCALES[..1]
        } else {
            &SCALES
        };
        let candidates = scales.iter().flat_map(|&scale| {
            let candidate = |strength| Candidate { scale, strength };
            STRENGTHS.map(candidate)
        });
        let repeats = match answers.len() {
            ..=REPEATED_UP_TO => REPEATS,
            _ => 1,
        };
        let folds: Vec<Vec<usize>> = (0..repeats).map(|round| folds(answers, round)).collect();
        let logits = fit_folds(problem, scales, &folds);
        let round = |(fold_of, logits): (Vec<usize>, CandidateLogits)| Round {
            fold_of,
            likelihoods: logits.iter().map(|fit| problem.likelihoods(fit)).collect(),
            logits,
        };
        Self {
            candidates: candidates.collect(),
            rounds: folds.into_iter().zip(logits).map(round).collect(),
        }
    }

    /// Returns the candidate with the best fits.
    pub(super) fn chosen(&self) -> Candidate {
        let mean_of_rounds = |candidate: usize| {
            let rounds = self.rounds.iter();
            let sum: f64 = rounds.map(|round| round.likelihoods[candidate].sum()).sum();
            sum / float(self.rounds.len())
        };
        self.candidates[self.best(mean_of_rounds)]
    }

    /// Returns the position of the best candidate by log-likelihood and scale, the first of equal ones.
    fn best(&self, likelihood: impl Fn(usize) -> f64) -> usize {
        let mut best = (0, f64::NEG_INFINITY);
        for (position, candidate) in self.candidates.iter().enumerate() {
            let worth = likelihood(position) - TRUST_IN_WORDS * (1.0 - candidate.scale);
            if worth > best.1 {
                best = (position, worth);
            }
        }
        best.0
    }

    /// Returns held-out logits, averaged over the rounds: answers × classes. For each fold, the other folds choose the
    /// candidate: if all folds chose it, accuracy with 50 answers would look 2 points better than it is for new posts.
    pub(super) fn held_out(&self) -> Array2<f64> {
        let mut mean = Array2::zeros(self.rounds[0].logits[0].dim());
        for round in &self.rounds {
            for fold in 0..FOLDS {
                let chosen_by_others = self.best(|candidate| {
                    let answers = round.likelihoods[candidate].iter().zip(&round.fold_of);
                    let others = answers.filter(|(_, fold_of)| **fold_of != fold);
                    others.map(|(likelihood, _)| likelihood).sum()
                });
                let logits = &round.logits[chosen_by_others];
                for row in rows_of(&round.fold_of, fold) {
                    let mut mean = mean.row_mut(row);
                    mean.scaled_add(1.0 / float(self.rounds.len()), &logits.row(row));
                }
            }
        }
        mean
    }
}

/// Returns the logits of each answer from fits to the other folds, for each round. `rounds` contains the fold of each
/// answer.
fn fit_folds(problem: &Problem, scales: &[f64], rounds: &[Vec<usize>]) -> Vec<CandidateLogits> {
    let parts: Vec<(usize, usize)> = (0..rounds.len())
        .flat_map(|round| (0..FOLDS).map(move |fold| (round, fold)))
        .collect();
    let fit_part = |(round, fold): &(usize, usize)| -> CandidateLogits {
        let (held_out, others): (Vec<usize>, Vec<usize>) =
            (0..rounds[*round].len()).partition(|row| rounds[*round][*row] == *fold);
        let (held_out, others) = (problem.rows(&held_out), problem.rows(&others));
        let fits = scales
            .iter()
            .flat_map(|scale| others.scaled(*scale).path(0.0));
        fits.map(|fit| fit.logits(&held_out.prior, &held_out.vectors))
            .collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts_of_thread = parts.len().div_ceil(threads);
    let fitted: Vec<CandidateLogits> = std::thread::scope(|scope| {
        let running: Vec<_> = parts
            .chunks(parts_of_thread)
            .map(|parts| scope.spawn(move || parts.iter().map(fit_part).collect::<Vec<_>>()))
            .collect();
        let fitted = running.into_iter();
        fitted
            .flat_map(|thread| thread.join().expect("a fit does not panic"))
            .collect()
    });
    let zeros = vec![Array2::zeros(problem.prior.dim()); fitted[0].len()];
    let mut logits = vec![zeros; rounds.len()];
    for ((round, fold), fits) in parts.into_iter().zip(fitted) {
        for (of_round, of_fold) in logits[round].iter_mut().zip(fits) {
            for (row, logits) in rows_of(&rounds[round], fold).zip(of_fold.rows()) {
                of_round.row_mut(row).assign(&logits);
            }
        }
    }
    logits
}

/// Returns the fold of each answer. Equal texts are in the same fold, and fold sizes differ by at most one distinct
/// text.
fn folds(answers: &[Answer], round: u64) -> Vec<usize> {
    let texts = distinct_texts(answers);
    // The seed is fixed, so that the same answers give the same fit.
    let mut random = fastrand::Rng::with_seed(round);
    let mut order: Vec<usize> = (0..texts.len()).collect();
    random.shuffle(&mut order);
    let fold_of = |answer: &Answer| {
        let position = texts.binary_search(&&answer.text_hash);
        order[position.expect("each text is listed")] % FOLDS
    };
    answers.iter().map(fold_of).collect()
}

/// Returns the rows of a fold, in order.
fn rows_of(fold_of: &[usize], fold: usize) -> impl Iterator<Item = usize> {
    (0..fold_of.len()).filter(move |row| fold_of[*row] == fold)
}
