//! Finds the fastest token budget of a batch, on real text lengths, on this device and within its memory.
//!
//! [`search`] is a pure algorithm: it requests the speed at one budget after another, first doubling, then bisecting.
//! [`tune`] measures the speeds with an engine, within a time limit.

#[cfg(test)]
mod tests;

use std::time::Duration;

use topicmill_core::clock::SharedClock;
use topicmill_score::batch::BatchRow;
use topicmill_score::engine::EngineError;
use topicmill_score::labeler::{Labeler, LabelerError, PreparedLabels};
use topicmill_score::text::EncodedText;

/// Minimum speed-up to continue doubling, because each step doubles the memory that a batch needs.
const MIN_GAIN: f64 = 1.03;
/// Minimum speed-up over the default that is worth the memory.
const MIN_GAIN_OVER_DEFAULT: f64 = 1.02;
/// Rounds in which the best budget and the default are compared, alternating so that neither profits from a warmer
/// machine.
const FINAL_ROUNDS: usize = 2;
/// The smallest budget that is tried: half of the maximum length of most models.
pub const MIN_BUDGET: usize = 256;
/// The largest budget that is tried: 64 texts of BART's maximum length. On most GPUs, memory ends the search earlier.
pub const MAX_BUDGET: usize = 1 << 16;
/// Maximum share of the machine's memory in use. Doubling may double the memory of a batch, and the database cache and
/// other programs need the rest.
const MAX_MEMORY_USED: f64 = 0.8;
/// Approximate maximum number of measurements.
const MEASUREMENTS: f64 = 18.0;

/// The result of measuring one budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trial {
    /// Tokens per second, without padding.
    Speed(f64),
    /// The budget needs too much memory.
    TooLarge,
    /// The time limit is exceeded.
    TimeUp,
}

/// One measurement of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriedBudget {
    /// The budget.
    pub batch_tokens: usize,
    /// Tokens per second; `None` if the budget needs too much memory.
    pub tokens_per_sec: Option<f64>,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundBudget {
    /// The budget to use.
    pub batch_tokens: usize,
    /// All measurements, in order.
    pub steps: Vec<TriedBudget>,
    /// True if the search completed in time; otherwise the result is not cached.
    pub whole: bool,
}

/// The range of budgets to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The budget to use unless another budget is faster.
    pub default: usize,
    /// The budget to try first.
    pub least: usize,
    /// The maximum budget.
    pub most: usize,
}

/// Searches for the fastest budget.
///
/// # Errors
/// Errors of `measure`.
pub fn search<E>(
    range: Range,
    measure: &mut dyn FnMut(usize) -> Result<Trial, E>,
) -> Result<FoundBudget, E> {
    let mut curve = Curve {
        steps: Vec::new(),
        ceiling: range.most,
        in_time: true,
        measure,
    };
    curve.double(range.least)?;
    curve.bisect(range.least)?;
    let batch_tokens = curve.compare_with_default(range.default)?;
    Ok(FoundBudget {
        batch_tokens,
        whole: curve.in_time,
        steps: curve.steps,
    })
}

struct Curve<'a, E> {
    steps: Vec<TriedBudget>,
    /// The largest budget that may fit.
    ceiling: usize,
    in_time: bool,
    measure: &'a mut dyn FnMut(usize) -> Result<Trial, E>,
}

impl<E> Curve<'_, E> {
    /// Measures a budget if it may fit and there is time.
    fn at(&mut self, batch_tokens: usize) -> Result<Option<f64>, E> {
        if !self.in_time || batch_tokens > self.ceiling {
            return Ok(None);
        }
        let tokens_per_sec = match (self.measure)(batch_tokens)? {
            Trial::Speed(speed) => Some(speed),
            Trial::TooLarge => {
                self.ceiling = batch_tokens - 1;
                None
            }
            Trial::TimeUp => {
                self.in_time = false;
                return Ok(None);
            }
        };
        self.steps.push(TriedBudget {
            batch_tokens,
            tokens_per_sec,
        });
        Ok(tokens_per_sec)
    }

    /// Returns the fastest budget that fits; on a tie the smaller one.
    fn best(&self) -> Option<(usize, f64)> {
        self.steps
            .iter()
            .filter(|step| step.batch_tokens <= self.ceiling)
            .filter_map(|step| Some((step.batch_tokens, step.tokens_per_sec?)))
            .reduce(|a, b| if b.1 > a.1 { b } else { a })
    }

    fn double(&mut self, least: usize) -> Result<(), E> {
        let (mut budget, mut flat) = (least, 0);
        // One step without a gain may be noise; two end the doubling.
        while flat < 2 {
            let before = self.best();
            let Some(speed) = self.at(budget)? else { break };
            flat = match before {
                Some((_, best)) if speed < best * MIN_GAIN => flat + 1,
                _ => 0,
            };
            budget *= 2;
        }
        Ok(())
    }

    /// Halves the distance to both neighbours of the best budget, twice.
    fn bisect(&mut self, least: usize) -> Result<(), E> {
        let Some((mut best, _)) = self.best() else {
            return Ok(());
        };
        let mut reach = best / 2;
        for _ in 0..2 {
            let above = best + reach;
            let (below, above) = (
                best - reach / 2,
                usize::midpoint(best, above.min(self.ceiling)),
            );
            for budget in [below.max(least), above] {
                if self.steps.iter().all(|step| step.batch_tokens != budget) {
                    self.at(budget)?;
                }
            }
            best = self.best().map_or(best, |(best, _)| best);
            reach /= 2;
        }
        Ok(())
    }

    /// Compares the best budget with the default, alternating.
    fn compare_with_default(&mut self, default: usize) -> Result<usize, E> {
        let Some((best, _)) = self.best() else {
            // Not even the smallest budget fits: use the default or the ceiling, whichever is smaller. Batches that do
            // not fit are split at run time.
            return Ok(default.min(self.ceiling.max(1)));
        };
        if best == default {
            return Ok(default);
        }
        let (mut of_best, mut of_default) = (0.0_f64, 0.0_f64);
        for _ in 0..FINAL_ROUNDS {
            // The fastest measurement counts, because other programs can only slow a measurement down.
            of_default = of_default.max(self.at(default)?.unwrap_or(0.0));
            of_best = of_best.max(self.at(best)?.unwrap_or(0.0));
        }
        let fits = default <= self.ceiling;
        // If the time was up before the comparison, the default is kept.
        Ok(if fits && of_best <= of_default * MIN_GAIN_OVER_DEFAULT {
            default
        } else {
            best
        })
    }
}

/// The time limit of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchLimit {
    /// An absolute limit.
    Time(Duration),
    /// A share of the time to compute some tokens, up to a maximum.
    Share {
        /// The share of the expected time.
        share: f64,
        /// The number of tokens to compute.
        tokens: f64,
        /// The maximum.
        most: Duration,
    },
}

/// Approximate number of tokens in the pilot measurement.
const PILOT_TOKENS: usize = 2_048;

/// Searches with an engine on texts like those to be scored, and sets the labeler's budget. If the limit is too
/// short for any measurement, keeps the default and reports no steps.
///
/// # Errors
/// Errors of the engine other than running out of memory.
pub fn tune(
    labeler: &mut Labeler,
    prepared: &PreparedLabels,
    texts: &[EncodedText],
    clock: &SharedClock,
    limit: SearchLimit,
) -> Result<FoundBudget, LabelerError> {
    tune_within(labeler, prepared, texts, clock, limit, &memory_used)
}

fn tune_within(
    labeler: &mut Labeler,
    prepared: &PreparedLabels,
    texts: &[EncodedText],
    clock: &SharedClock,
    limit: SearchLimit,
    memory_used: &dyn Fn() -> Option<f64>,
) -> Result<FoundBudget, LabelerError> {
    let default = labeler.batch_tokens();
    let nothing = FoundBudget {
        batch_tokens: default,
        steps: Vec::new(),
        whole: false,
    };
    let all = labeler.rows(prepared, texts);
    let pilot = sample_rows(&all, PILOT_TOKENS);
    // The first round is a warm-up: it allocates memory and loads code.
    let mut speed = None;
    for _ in 0..2 {
        speed = measure(labeler, prepared, texts, &pilot, default, clock)?;
    }
    // Measurements do not count as work.
    labeler.take_stats();
    let Some(speed) = speed else {
        return Ok(nothing);
    };
    let seconds = match limit {
        SearchLimit::Time(time) => time.as_secs_f64(),
        SearchLimit::Share {
            share,
            tokens,
            most,
        } => (share * tokens / speed).min(most.as_secs_f64()),
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and a bound only"
    )]
    let rows = sample_rows(&all, (seconds * speed / MEASUREMENTS) as usize);
    // Each measurement fills at least two batches.
    let most = (total_tokens(&rows) / 2).min(MAX_BUDGET);
    // Budgets above the default could not be measured, and smaller ones are not worth a search.
    if most < 2 * default {
        return Ok(nothing);
    }
    let until = clock.elapsed() + Duration::from_secs_f64(seconds);
    let range = Range {
        default,
        least: MIN_BUDGET,
        most,
    };
    let found = search(range, &mut |budget| {
        if clock.elapsed() > until {
            return Ok::<_, LabelerError>(Trial::TimeUp);
        }
        let speed = measure(labeler, prepared, texts, &rows, budget, clock)?;
        Ok(match speed {
            Some(speed) if memory_used().is_none_or(|taken| taken < MAX_MEMORY_USED) => {
                Trial::Speed(speed)
            }
            _ => Trial::TooLarge,
        })
    })?;
    labeler.set_batch_tokens(found.batch_tokens);
    labeler.take_stats();
    Ok(found)
}

/// Measures the tokens per second at a budget; `None` if it does not fit.
fn measure(
    labeler: &mut Labeler,
    prepared: &PreparedLabels,
    texts: &[EncodedText],
    rows: &[BatchRow],
    budget: usize,
    clock: &SharedClock,
) -> Result<Option<f64>, LabelerError> {
    let batches = labeler.plan(rows.to_vec(), budget);
    let began = clock.elapsed();
    for batch in &batches {
        match labeler.compute_batch(prepared, texts, batch) {
            Ok(()) => {}
            Err(EngineError::OutOfMemory { .. }) => {
                // A session keeps its memory after running out, so the next measurement would fail.
                labeler.restart()?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let seconds = clock.elapsed().saturating_sub(began).as_secs_f64();
    // A test clock may not advance.
    #[expect(clippy::cast_precision_loss, reason = "a speed")]
    let speed = total_tokens(rows) as f64 / seconds.max(1e-9);
    Ok(Some(speed))
}

fn total_tokens(rows: &[BatchRow]) -> usize {
    rows.iter().map(|row| row.len).sum()
}

/// Samples evenly spaced rows with about `tokens` tokens in total.
fn sample_rows(rows: &[BatchRow], tokens: usize) -> Vec<BatchRow> {
    let stride = (total_tokens(rows) / tokens.max(1)).max(1);
    // Rows are grouped by text with one row per label: an even stride could select a single label.
    let stride = stride + usize::from(stride.is_multiple_of(2));
    rows.iter().copied().step_by(stride).collect()
}

/// Returns the share of the machine's memory in use, if the system reports it.
fn memory_used() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let field = |name: &str| -> Option<f64> {
        // `MemTotal:       32 kB`
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some(1.0 - field("MemAvailable")? / field("MemTotal")?)
}
