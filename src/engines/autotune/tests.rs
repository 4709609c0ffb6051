//! The search on curves of known shape, and tuning with a scripted engine.

use super::*;
use topicmill_core::clock::SystemClock;
use topicmill_score::scripted::{ScriptedEngine, nli_folder, set};

const RANGE: Range = Range {
    default: 1_024,
    least: MIN_BUDGET,
    most: MAX_BUDGET,
};

/// Searches on a curve. Also returns the largest budget that was measured.
fn on(range: Range, mut curve: impl FnMut(usize) -> Trial) -> (FoundBudget, usize) {
    let mut largest = 0;
    let found = search(range, &mut |budget| {
        largest = largest.max(budget);
        Ok::<_, ()>(curve(budget))
    });
    (found.unwrap(), largest)
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn tokens(budget: usize) -> f64 {
    budget as f64
}

/// A curve that rises until `knee` and then falls slowly.
fn peak(knee: f64) -> impl Fn(usize) -> Trial {
    move |budget| {
        let at = tokens(budget) / knee;
        Trial::Speed(1e4 * if at < 1.0 { at } else { 1.0 / (0.5 + 0.5 * at) })
    }
}

#[test]
fn the_fastest_budget_is_found_at_any_size() {
    for knee in [300.0, 700.0, 3_000.0, 5_500.0, 20_000.0] {
        let (found, _) = on(RANGE, peak(knee));
        let Trial::Speed(speed) = peak(knee)(found.batch_tokens) else {
            unreachable!()
        };
        assert!(speed > 0.85 * 1e4, "{knee}: {found:?}");
        assert!(found.whole && found.steps.len() < 20, "{found:?}");
    }
}

#[test]
fn the_default_is_kept_unless_another_budget_is_clearly_faster() {
    let flat = |_| Trial::Speed(1e4);
    assert_eq!(on(RANGE, flat).0.batch_tokens, 1_024);
    // One percent is not worth it.
    let slope = |budget: usize| Trial::Speed(1e4 * if budget == 512 { 1.01 } else { 1.0 });
    assert_eq!(on(RANGE, slope).0.batch_tokens, 1_024);
    let worth = |budget: usize| Trial::Speed(1e4 * if budget == 512 { 1.05 } else { 1.0 });
    assert_eq!(on(RANGE, worth).0.batch_tokens, 512);
}

#[test]
fn budgets_beyond_the_memory_are_never_chosen() {
    for memory in [300, 900, 1_500, 5_000] {
        let grows = |budget: usize| {
            if budget > memory {
                Trial::TooLarge
            } else {
                Trial::Speed(tokens(budget))
            }
        };
        let (found, _) = on(RANGE, grows);
        assert!(found.batch_tokens <= memory, "{memory}: {found:?}");
        assert!(found.batch_tokens * 2 > memory, "{memory}: {found:?}");
        let failed = found.steps.iter().filter(|s| s.tokens_per_sec.is_none());
        assert!(failed.count() <= 5, "{found:?}");
    }
    let (found, _) = on(RANGE, |_| Trial::TooLarge);
    assert_eq!(found.batch_tokens, MIN_BUDGET - 1);
}

#[test]
fn noisy_measurements_cost_little_speed() {
    for seed in 0..200_u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        let noisy = |budget| {
            let noise = random.f64();
            match peak(4_000.0)(budget) {
                Trial::Speed(speed) => Trial::Speed(speed * (0.96 + 0.08 * noise)),
                other => other,
            }
        };
        let (found, _) = on(RANGE, noisy);
        let Trial::Speed(speed) = peak(4_000.0)(found.batch_tokens) else {
            unreachable!()
        };
        assert!(speed > 0.75e4, "{seed}: {found:?}");
        assert!(found.steps.len() <= 24, "{found:?}");
    }
}

#[test]
fn a_search_that_runs_out_of_time_keeps_the_default() {
    let left = std::cell::Cell::new(5);
    let (found, _) = on(RANGE, |budget| {
        if left.get() == 0 {
            return Trial::TimeUp;
        }
        left.set(left.get() - 1);
        Trial::Speed(tokens(budget))
    });
    assert_eq!((found.batch_tokens, found.whole), (1_024, false));
    assert_eq!(
        found.steps.len(),
        5,
        "faster budgets were seen but not compared"
    );
}

fn tuned(memory: usize, limit: SearchLimit) -> (FoundBudget, usize) {
    let engine = ScriptedEngine {
        max_batch_tokens: memory,
        ..ScriptedEngine::default()
    };
    let mut labeler = Labeler::load(nli_folder(), Box::new(engine), 1_024).unwrap();
    let prepared = labeler.prepare(&set(&["food", "music"])).unwrap();
    let texts: Vec<String> = (0..3_000)
        .map(|i| format!("post {i} {}", "word ".repeat(i * 7 % 60)))
        .collect();
    let texts = labeler.encoder().encode(&texts).unwrap();
    let clock = SystemClock::shared();
    let found = tune_within(&mut labeler, &prepared, &texts, &clock, limit, &|| None).unwrap();
    let computed = labeler.take_stats();
    assert_eq!(computed.tokens, 0, "measurements do not count as work");
    (found, labeler.batch_tokens())
}

#[test]
fn the_found_budget_fits_the_memory_and_is_set() {
    let (found, kept) = tuned(1_500, SearchLimit::Time(Duration::from_mins(1)));
    assert!(found.batch_tokens <= 1_500, "{found:?}");
    assert_eq!(found.batch_tokens, kept);
}

#[test]
fn a_search_is_skipped_for_little_work() {
    let limit = SearchLimit::Share {
        share: 0.01,
        tokens: 10_000.0,
        most: Duration::from_mins(1),
    };
    let (found, kept) = tuned(usize::MAX, limit);
    assert_eq!((found.steps.len(), found.whole, kept), (0, false, 1_024));
}

#[test]
fn doubling_ends_when_speed_no_longer_grows() {
    let saturates = |budget| Trial::Speed(1e4 * (tokens(budget) / 2_000.0).min(1.0));
    let (found, largest) = on(RANGE, saturates);
    assert!(largest <= 8_192, "{largest}");
    assert!((2_000..=4_096).contains(&found.batch_tokens), "{found:?}");
}
