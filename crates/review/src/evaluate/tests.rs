//! Compares figures with scikit-learn's and `SciPy`'s (`tools/evaluate_reference.py` writes the fixture), and tests
//! undefined figures.

use serde_json::Value;

use super::*;

const FIXTURE: &str = include_str!("reference.json");

fn close(found: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    assert!(
        (found - expected).abs() < 1e-9,
        "{what}: {found} is not {expected}"
    );
}

fn share_is(found: &Proportion, expected: &Value, what: &str) {
    let counts = [0, 1].map(|count| number(&expected[count]));
    assert_eq!([found.of, found.all], counts, "{what}");
    close(found.share.unwrap(), &expected[2], what);
    close(found.low, &expected[3], what);
    close(found.high, &expected[4], what);
}

fn estimate_is(found: &Estimate, expected: &Value, what: &str) {
    close(found.value.unwrap(), &expected[0], what);
    close(found.low, &expected[1], what);
    close(found.high, &expected[2], what);
}

fn number(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn rows(fixture: &Value, at: usize) -> Vec<EvaluatedPost> {
    let row = |row: &Value| EvaluatedPost {
        right: row[0]
            .as_u64()
            .map(|_| number(&row[0]))
            .into_iter()
            .collect(),
        ties: Vec::new(),
        best: number(&row[at]),
        score: row[at + 1].as_f64().unwrap(),
        abstained: row[at + 2].as_bool().unwrap(),
        weight: 1.0,
    };
    list(&fixture["rows"]).iter().map(row).collect()
}

fn evaluation_is(found: &Evaluation, expected: &Value) {
    for (what, share) in [
        ("outcome", &found.outcome),
        ("in_scope", &found.in_scope),
        ("coverage", &found.in_scope_labelled),
        ("out_of_scope", &found.out_of_scope),
        ("precision", &found.precision),
        ("precision_in_scope", &found.precision_in_scope),
    ] {
        share_is(share, &expected[what], what);
    }
    estimate_is(&found.macro_f1, &expected["macro_f1"], "macro_f1");
    let error = found.calibration_error.unwrap();
    close(error, &expected["calibration_error"], "calibration_error");
    let bins = found.reliability.iter().filter(|bin| bin.right.all > 0);
    let bins: Vec<&ReliabilityBin> = bins.collect();
    assert_eq!(bins.len(), list(&expected["bins"]).len());
    for (bin, expected) in bins.iter().zip(list(&expected["bins"])) {
        assert_eq!(bin.right.all, number(&expected[0]));
        close(bin.mean_score, &expected[1], "mean score in a bin");
        close(bin.right.share.unwrap(), &expected[2], "share in a bin");
    }
    assert_eq!(found.labels.len(), list(&expected["per_label"]).len());
    for (label, expected) in found.labels.iter().zip(list(&expected["per_label"])) {
        // The reference uses 0 for undefined figures.
        let shares = [label.precision.share, label.recall.share, label.f1];
        for (share, expected) in shares.into_iter().zip(list(expected)) {
            close(share.unwrap_or(0.0), expected, "precision, recall or F1");
        }
        assert_eq!(label.support(), number(&expected[3]));
    }
    let mut matrix = vec![vec![0; found.labels.len() + 1]; found.labels.len() + 1];
    for cell in &found.confusion {
        matrix[cell.gold][cell.given] = cell.posts;
    }
    let expected: Vec<Vec<usize>> = list(&expected["confusion"])
        .iter()
        .map(|row| list(row).iter().map(number).collect())
        .collect();
    assert_eq!(matrix, expected);
}

#[test]
fn figures_match_scikit_learn() {
    let fixture: Value = serde_json::from_str(FIXTURE).unwrap();
    let labels = number(&fixture["labels"]);
    let (first, second) = (rows(&fixture, 1), rows(&fixture, 4));
    evaluation_is(&evaluate(&first, labels), &fixture["first"]);
    evaluation_is(&evaluate(&second, labels), &fixture["second"]);
    let pairs = first.iter().zip(&second);
    let differ = pairs.filter(|(a, b)| a.given() != b.given()).count();
    let found = difference((&first, labels), (&second, labels), differ);
    let expected = &fixture["difference"];
    assert_eq!(
        [found.differ, found.only_first, found.only_second],
        ["differ", "only_first", "only_second"].map(|what| number(&expected[what]))
    );
    estimate_is(&found.outcome, &expected["outcome"], "outcome");
    estimate_is(&found.macro_f1, &expected["macro_f1"], "macro_f1");
    close(found.p, &expected["p"], "p");
}

fn bounds_are(found: &Proportion, expected: [f64; 2]) {
    for (found, expected) in [found.low, found.high].into_iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4, "{found} is not {expected}");
    }
}

#[test]
fn proportions_have_wilson_intervals() {
    let share = Proportion::new(8, 10);
    assert_eq!(share.share, Some(0.8));
    bounds_are(&share, [0.490_16, 0.943_32]);
    bounds_are(&Proportion::new(10, 10), [0.722_47, 1.0]);
    let none = Proportion::new(0, 0);
    assert_eq!((none.share, none.low, none.high), (None, 0.0, 1.0));
}

#[test]
fn weights_count_as_posts() {
    let share = |rows: &[(bool, f64)]| Proportion::weighted(rows.iter().copied());
    let weighted = share(&[(true, 2.0), (false, 1.0), (true, 1.0)]);
    assert_eq!((weighted.of, weighted.all), (2, 3));
    assert_eq!(weighted.share, Some(0.75));
    // Wilson with p = 3/4 and n = (2 + 1 + 1)² / (2² + 1 + 1) = 8/3.
    bounds_are(&weighted, [0.2385, 0.9664]);
    assert_eq!(share(&[(true, 3.0), (false, 3.0)]), Proportion::new(1, 2));
}

fn row(right: &[usize], best: usize) -> EvaluatedPost {
    EvaluatedPost {
        right: right.to_vec(),
        ties: Vec::new(),
        best,
        score: 0.75,
        abstained: false,
        weight: 1.0,
    }
}

#[test]
fn undefined_figures_are_none() {
    let nothing = evaluate(&[], 2);
    assert_eq!(nothing.outcome.share, None);
    assert_eq!(nothing.macro_f1.value, None);
    assert_eq!(nothing.calibration_error, None);
    // No in-scope posts, and no labels assigned.
    let silent = [0, 1].map(|best| EvaluatedPost {
        abstained: true,
        ..row(&[], best)
    });
    let silent = evaluate(&silent, 2);
    assert_eq!(silent.outcome.share, Some(1.0));
    assert_eq!(silent.in_scope.share, None);
    assert_eq!(silent.precision.share, None);
    assert_eq!(silent.labels[0].f1, None);
    assert_eq!(silent.macro_f1.value, None);
    assert!((difference((&[], 2), (&[], 2), 0).p - 1.0).abs() < 1e-12);
}

#[test]
fn any_of_several_gold_labels_is_correct() {
    let rows = [(vec![0, 1], 1), (vec![0, 1], 2), (vec![1], 1)];
    let rows = rows.map(|(right, best)| row(&right, best));
    let found = evaluate(&rows, 3);
    assert_eq!((found.in_scope.of, found.in_scope.all), (2, 3));
    let cells = found
        .confusion
        .iter()
        .map(|cell| (cell.gold, cell.given, cell.posts));
    assert!(cells.eq([(0, 2, 1), (1, 1, 2)]));
}

/// Returns a sample of all posts, which have these shares of assigned labels.
fn whole(assigned: Vec<f64>, rows: &[EvaluatedPost]) -> [SampledPart<'_>; 1] {
    let rows = rows.iter().collect();
    let share = 1.0;
    [SampledPart {
        share,
        assigned,
        rows,
    }]
}

/// Returns posts with the gold label and the assigned label of each cell of a table.
fn cells(cells: &[(usize, usize, usize)]) -> Vec<EvaluatedPost> {
    let posts = cells
        .iter()
        .flat_map(|(gold, given, posts)| std::iter::repeat_n(row(&[*gold], *given), *posts));
    posts.collect()
}

#[test]
fn shares_are_weighted_means_of_the_posts_with_and_without_the_label() {
    // Label 0 is assigned to 60 of 100 posts, 10 of which have the gold label 1; label 1 to 40, rightly; label 2 and no
    // label to none, so they are assumed to be right as often as the others.
    let sample = cells(&[(0, 0, 50), (1, 0, 10), (1, 1, 40)]);
    let found = estimate_shares(&whole(vec![0.5, 0.4, 0.05, 0.05], &sample));
    let expected = [
        0.5 * 50.0 / 60.0,
        0.4 + 0.6 * 10.0 / 60.0,
        0.05 * 0.9,
        0.05 * 0.9,
    ];
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found.value.unwrap() - expected).abs() < 1e-12, "{found:?}");
    }
    // Quantiles of 0.5 Beta(50.5, 10.5) + 0.5 Beta(0.5, 40.5), and of 0.4 Beta(40.5, 0.5) + 0.6 Beta(10.5, 50.5), from
    // ten million draws with NumPy.
    for (found, low, high) in [(found[0], 0.3666, 0.4661), (found[1], 0.4462, 0.5614)] {
        assert!((found.low - low).abs() < 5e-4, "{found:?}");
        assert!((found.high - high).abs() < 5e-4, "{found:?}");
    }
    // A label that was never right in the sample may have no post at all.
    assert_eq!(found[2].low.to_bits(), 0.0f64.to_bits());
    assert!(found[2].high > 0.05, "{:?}", found[2]);
    assert_eq!(estimate_shares(&whole(vec![0.5, 0.5], &[]))[0].value, None);
}

#[test]
fn one_stratum_has_the_jeffreys_interval_and_disagreements_widen_it() {
    let stratum = |least, most| Stratum {
        weight: 1.0,
        sampled: 20,
        least,
        most,
        assumed: 0.0,
    };
    // Quantiles of Beta(3.5, 17.5) and Beta(5.5, 15.5), from SciPy.
    let one = stratified_share(&[stratum(3, 3)]);
    assert!((one.low - 0.044_131_34).abs() < 1e-6, "{one:?}");
    assert!((one.high - 0.348_577_71).abs() < 1e-6, "{one:?}");
    let both = stratified_share(&[stratum(3, 5)]);
    assert!((both.value.unwrap() - 0.2).abs() < 1e-12);
    assert!((both.low - one.low).abs() < 1e-12, "{both:?}");
    assert!((both.high - 0.464_194_63).abs() < 1e-6, "{both:?}");
}

#[test]
fn four_strata_have_the_interval_of_their_weighted_sum() {
    let quarter = Stratum {
        weight: 0.25,
        sampled: 50,
        least: 10,
        most: 10,
        assumed: 0.0,
    };
    let found = stratified_share(&[quarter; 4]);
    // From ten million draws with NumPy.
    assert!((found.low - 0.1537).abs() < 1e-3, "{found:?}");
    assert!((found.high - 0.2634).abs() < 1e-3, "{found:?}");
}

#[test]
fn a_post_on_which_annotators_disagree_widens_the_bounds_and_stays_in_the_sample() {
    // 60 posts are right. About 20 others, annotators disagree: one of two answers agrees with the label. About five
    // more, no answer agrees.
    let mut posts = cells(&[(0, 0, 30), (1, 1, 30), (0, 0, 20), (0, 2, 5)]);
    for post in &mut posts[60..] {
        post.ties = vec![vec![1]];
    }
    let found = evaluate(&posts, 3);
    let (least, most) = (Proportion::new(60, 85), Proportion::new(80, 85));
    assert_eq!(found.outcome.share, least.share);
    assert_eq!(found.outcome.share_if_right, most.share);
    let bounds = [found.outcome.low, found.outcome.high].map(f64::to_bits);
    assert_eq!(bounds, [least.low, most.high].map(f64::to_bits));
    assert_eq!(json!(found.coverage).get("share_if_right"), None);
    let recall = found.labels[0].recall;
    assert_eq!(recall.share, Some(30.0 / 35.0));
    assert_eq!(recall.share_if_right, Some(50.0 / 55.0));
    // Of 25 undecided posts, label 0 or label 1 is right for each.
    let assigned = vec![50.0 / 85.0, 30.0 / 85.0, 5.0 / 85.0, 0.0];
    let shares = estimate_shares(&whole(assigned, &posts));
    let [least, most] = [30.0 / 85.0, 55.0 / 85.0];
    for share in &shares[..2] {
        let off = share.value.unwrap() - f64::midpoint(least, most);
        assert!(off.abs() < 1e-12, "{share:?}");
        assert!(share.low < least && most < share.high, "{share:?}");
    }
    // A run is better only if all answers agree with it.
    let other = cells(&[(0, 0, 30), (1, 1, 30), (0, 1, 25)]);
    let found = difference((&posts, 3), (&other[..], 3), 25);
    assert_eq!((found.only_first, found.only_second), (0, 0));
}

#[test]
fn a_weight_counts_like_as_many_posts() {
    let early = cells(&[(0, 0, 12), (1, 0, 3), (1, 1, 5)]);
    let late = cells(&[(0, 1, 4), (1, 1, 6)]);
    let heavy = late.iter().map(|row| EvaluatedPost {
        weight: 3.0,
        ..row.clone()
    });
    let weighted = evaluate(&early.iter().cloned().chain(heavy).collect::<Vec<_>>(), 2);
    let repeated = evaluate(&[&early[..], &late, &late, &late].concat(), 2);
    let figures = |of: &Evaluation| {
        [
            of.outcome.share,
            of.in_scope.share,
            of.labels[1].precision.share,
            of.labels[1].f1,
            of.macro_f1.value,
            of.calibration_error,
        ]
        .map(Option::unwrap)
    };
    for (found, expected) in figures(&weighted).into_iter().zip(figures(&repeated)) {
        assert!((found - expected).abs() < 1e-12, "{found} {expected}");
    }
    assert_eq!((weighted.outcome.of, weighted.outcome.all), (23, 30));
    assert!(weighted.outcome.low < repeated.outcome.low);
}

#[test]
fn waves_are_resampled_apart() {
    // All posts of a wave are alike, so each resample of the waves is the sample.
    let mut sure = cells(&[(0, 0, 20), (0, 1, 10)]);
    sure[20..].iter_mut().for_each(|row| row.weight = 3.0);
    let Estimate { value, low, high } = evaluate(&sure, 2).macro_f1;
    // Label 0 has 20 true and 30 missed posts; label 1 has no gold label.
    assert!((value.unwrap() - 40.0 / 70.0).abs() < 1e-12, "{value:?}");
    assert_eq!(
        [low, high].map(f64::to_bits),
        [value.unwrap(); 2].map(f64::to_bits)
    );
}

#[test]
fn intervals_of_simulated_waves_and_disagreements_cover_the_truth() {
    let mut random = fastrand::Rng::with_seed(5);
    let runs = 400;
    let (mut weighted, mut bounded) = (0, 0);
    for _ in 0..runs {
        // 64 % of the labels are right among the early posts, and 20 % among as many later ones.
        let waves = [(100, 0.64), (30, 0.2)].map(|(sampled, share)| {
            let right = (0..sampled).filter(|_| random.f64() < share).count();
            Stratum {
                weight: 0.5,
                sampled,
                least: right,
                most: right,
                assumed: 0.5,
            }
        });
        let found = stratified_share(&waves);
        weighted += usize::from(found.low <= 0.42 && 0.42 <= found.high);
        // Ada is always right. Ben disagrees about two in five of the hard posts, which are labelled worse.
        let mut rows = cells(&[(0, 0, 100)]);
        for row in &mut rows {
            let is_hard = random.bool();
            if random.f64() > if is_hard { 0.2 } else { 0.65 } {
                row.right = vec![1];
            }
            if is_hard && random.f64() < 0.4 {
                row.ties = vec![vec![1 - row.right[0]]];
            }
        }
        let found = Accuracies::of(rows.iter()).outcome;
        let truth = f64::midpoint(0.65, 0.2);
        bounded += usize::from(found.low <= truth && truth <= found.high);
    }
    // The bounds allow for any decision of the disagreements.
    assert!(weighted >= 370 && bounded >= 390, "{weighted} {bounded}");
}
