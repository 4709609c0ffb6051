//! Finds how many padded tokens a batch should hold: on real lengths, on this device, within memory.
//!
//! [`search`] is pure: it asks for the speed at one budget after the other, doubling first and bisecting then.
//! [`tune`] answers from an engine, within a time.

#[cfg(test)]
mod tests;

use std::time::Duration;

use topicmill_core::clock::SharedClock;
use topicmill_score::batch::BatchRow;
use topicmill_score::engine::EngineError;
use topicmill_score::labeler::{Labeler, LabelerError, PreparedLabels};
use topicmill_score::text::EncodedText;

/// A larger budget that gains less than this ends the doubling: it costs twice the memory of a batch.
const MIN_GAIN: f64 = 1.03;
/// What is found must beat the default by this, or it is not worth the memory.
const MIN_GAIN_OVER_DEFAULT: f64 = 1.02;
/// How often the best and the default are compared in the end, in turns: once each way, so that neither has the warmer
/// machine.
const FINAL_ROUNDS: usize = 2;
/// The smallest budget that is tried: half of the longest text that most models take.
pub const MIN_BUDGET: usize = 256;
/// The largest budget that is tried: 64 of the longest texts that BART takes. Memory ends the search sooner on most GPUs.
pub const MAX_BUDGET: usize = 1 << 16;
/// Above this share of the machine's memory no larger budget is tried: a doubling may double what a batch takes, and what
/// the database's cache and other programs need is left to them.
const MAX_MEMORY_USED: f64 = 0.8;
/// Measurements that a search takes at most, about.
const MEASUREMENTS: f64 = 18.0;

/// What came of one budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trial {
    /// Tokens a second, padding not counted.
    Speed(f64),
    /// It needs more memory than there is, or than one should take.
    TooLarge,
    /// The time for searching is over.
    TimeUp,
}

/// One measurement of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TriedBudget {
    /// The budget.
    pub batch_tokens: usize,
    /// Tokens a second; `None` where it needs too much memory.
    pub tokens_per_sec: Option<f64>,
}

/// The end of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundBudget {
    /// The budget to take.
    pub batch_tokens: usize,
    /// Every measurement, in order.
    pub steps: Vec<TriedBudget>,
    /// Whether the search came to its end in time; else its result is not worth remembering.
    pub whole: bool,
}

/// Where to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// What is taken unless something is better.
    pub default: usize,
    /// Tried first.
    pub least: usize,
    /// Never exceeded.
    pub most: usize,
}

/// Searches for the fastest budget.
///
/// # Errors
/// Those of `measure`.
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
    /// Nothing larger fits.
    ceiling: usize,
    in_time: bool,
    measure: &'a mut dyn FnMut(usize) -> Result<Trial, E>,
}

impl<E> Curve<'_, E> {
    /// Measures a budget, if there is time and room.
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

    /// The fastest budget that fits, the smaller among equals.
    fn best(&self) -> Option<(usize, f64)> {
        self.steps
            .iter()
            .filter(|step| step.batch_tokens <= self.ceiling)
            .filter_map(|step| Some((step.batch_tokens, step.tokens_per_sec?)))
            .reduce(|a, b| if b.1 > a.1 { b } else { a })
    }

    fn double(&mut self, least: usize) -> Result<(), E> {
        let (mut budget, mut flat) = (least, 0);
        // One step that gains nothing may be noise; two are the end.
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

    /// Halves the distance to both neighbours of the best, twice.
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

    /// The best against the default, in turns.
    fn compare_with_default(&mut self, default: usize) -> Result<usize, E> {
        let Some((best, _)) = self.best() else {
            // Not even the least fits: then the smaller of the two, which will be halved as it runs.
            return Ok(default.min(self.ceiling.max(1)));
        };
        if best == default {
            return Ok(default);
        }
        let (mut of_best, mut of_default) = (0.0_f64, 0.0_f64);
        for _ in 0..FINAL_ROUNDS {
            // The faster of the runs counts: other programs can only make one slower.
            of_default = of_default.max(self.at(default)?.unwrap_or(0.0));
            of_best = of_best.max(self.at(best)?.unwrap_or(0.0));
        }
        let fits = default <= self.ceiling;
        // Where the time ended before the duel, nothing is proved.
        Ok(if fits && of_best <= of_default * MIN_GAIN_OVER_DEFAULT {
            default
        } else {
            best
        })
    }
}

/// How long a search may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SearchLimit {
    /// So long.
    Time(Duration),
    /// This share of the time that so many tokens take, but no longer than so.
    Share {
        /// The share of the expected time.
        share: f64,
        /// Tokens to compute.
        tokens: f64,
        /// At most.
        most: Duration,
    },
}

/// Tokens that are measured to know the speed, about.
const PILOT_TOKENS: usize = 2_048;

/// Searches with an engine on texts like those to be scored, and leaves the labeler with what was found. Where
/// the time allowed is too short to measure anything, the default stays and no step is told.
///
/// # Errors
/// Those of the engine, but for running out of memory.
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
    // The first computes nothing of use: memory is taken, code is read.
    let mut speed = None;
    for _ in 0..2 {
        speed = measure(labeler, prepared, texts, &pilot, default, clock)?;
    }
    // What is computed here is no work done.
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
    // Each trial fills two batches at least.
    let most = (tokens_of(&rows) / 2).min(MAX_BUDGET);
    // Nothing larger than the default could be measured, and smaller ones are not worth a search.
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

/// Tokens a second at a budget; `None` where it does not fit.
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
                // A session that ran out of memory keeps what it took, and the next trial would fail for want of it.
                labeler.restart()?;
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let seconds = clock.elapsed().saturating_sub(began).as_secs_f64();
    // A clock of a test may stand still.
    #[expect(clippy::cast_precision_loss, reason = "a speed")]
    let speed = tokens_of(rows) as f64 / seconds.max(1e-9);
    Ok(Some(speed))
}

fn tokens_of(rows: &[BatchRow]) -> usize {
    rows.iter().map(|row| row.len).sum()
}

/// Rows of about so many tokens, evenly from all of them.
fn sample_rows(rows: &[BatchRow], tokens: usize) -> Vec<BatchRow> {
    let stride = (tokens_of(rows) / tokens.max(1)).max(1);
    // Rows come text by text with as many labels each: a stride of that number would take one label only.
    let stride = stride + usize::from(stride.is_multiple_of(2));
    rows.iter().copied().step_by(stride).collect()
}

/// Share of the machine's memory that is in use, where the system tells.
fn memory_used() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| -> Option<f64> {
        // `MemTotal:       32 kB`
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some(1.0 - of("MemAvailable")? / of("MemTotal")?)
}
