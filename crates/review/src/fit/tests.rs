//! Tests fits with known solutions and answers that determine no fit.

use ndarray::ArrayView1;

use super::*;

/// Returns a pseudo-random number between -1 and 1.
fn wave(row: usize, column: usize) -> f64 {
    let (i, j) = (float(row), float(column));
    (i * 0.7 + j * 1.3 + i * j * 0.11).sin()
}

fn class_of(row: usize) -> usize {
    usize::from(wave(row, 0) + 0.5 * wave(row, 1) > 0.2)
        + usize::from(wave(row, 2) > 0.1 * float(row % 7))
}

/// Returns answers with a class that depends on the vector, and weakly informative zero-shot logits.
fn answers(rows: usize, help: f64) -> Vec<Answer> {
    let answer = |row: usize| {
        let right = class_of(row);
        #[expect(clippy::cast_possible_truncation, reason = "vectors are stored as f32")]
        let vector = (0..4).map(|column| wave(row, column) as f32).collect();
        Answer {
            text_hash: TextHash::new(&row.to_string()),
            logits: (0..3)
                .map(|class| 0.3 * wave(row, class + 9) + if class == right { help } else { 0.0 })
                .collect(),
            vector,
            right: (0..3)
                .map(|class| f64::from(u8::from(class == right)))
                .collect(),
        }
    };
    (0..rows).map(answer).collect()
}

fn share_right(logits: &Array2<f64>, answers: &[Answer]) -> f64 {
    let best = |row: ArrayView1<'_, f64>| {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        best.unwrap().0
    };
    let rows = logits.rows().into_iter().zip(answers);
    let right = rows.filter(|(row, answer)| answer.right[best(*row)] > 0.5);
    float(right.count()) / float(answers.len())
}

#[test]
fn the_solution_matches_scikit_learn() {
    // LogisticRegression(C=2, tol=1e-10) of scikit-learn 1.7 on the same numbers. It has no penalty on the bias, which
    // is therefore compared up to a constant.
    let weights = [
        [-2.021_561, -0.697_467, -2.092_965, 0.041_125],
        [0.072_933, 0.111_825, -0.248_191, -0.162_044],
        [1.948_627, 0.585_643, 2.341_155, 0.120_919],
    ];
    let bias = [0.202_135, 1.248_841, -1.450_977];
    let mut problem = Problem::new(&answers(60, 0.0), Link::Softmax).unwrap();
    problem.prior.fill(0.0);
    problem.bias_penalty = 0.0;
    let mut flat = problem.start();
    problem.minimise(&mut flat, 0.5, 1e-9);
    let found = problem.parameters(&flat);
    assert_eq!(found.weights.dim(), (3, 4));
    for (found, expected) in found.weights.iter().zip(weights.as_flattened()) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
    let mean = found.bias.mean().unwrap();
    for (found, expected) in found.bias.iter().zip(bias) {
        assert!((found - mean - expected).abs() < 1e-4, "{found} {expected}");
    }
}

#[test]
fn a_fit_in_the_span_of_the_vectors_is_the_same() {
    let mut rows = answers(9, 0.5);
    for (i, row) in rows.iter_mut().enumerate() {
        #[expect(clippy::cast_possible_truncation, reason = "vectors are stored as f32")]
        let vector = (0..20).map(|column| wave(i % 8, column + 3) as f32);
        row.vector = vector.collect();
    }
    let problem = Problem::new(&rows, Link::Softmax).unwrap();
    let whole = problem.path(0.1).pop().unwrap();
    let (reduced, basis) = problem.reduced();
    assert_eq!(basis.dim(), (8, 20), "two of the nine vectors are equal");
    let found = reduced.path(0.1).pop().unwrap().weights.dot(&basis);
    assert_eq!(found.dim(), whole.weights.dim());
    for (found, expected) in found.iter().zip(&whole.weights) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
}

#[test]
fn the_gradient_matches_finite_differences() {
    for (link, vectors) in [
        (Link::Softmax, true),
        (Link::Sigmoid, true),
        (Link::Sigmoid, false),
    ] {
        let mut rows = answers(12, 0.5);
        if !vectors {
            for row in &mut rows {
                row.vector.clear();
            }
        }
        let problem = Problem::new(&rows, link).unwrap();
        let point: Vec<f64> = (0..problem.start().len()).map(|n| wave(n, 5)).collect();
        let mut gradient = vec![0.0; point.len()];
        problem.loss(&point, 0.7, &mut gradient);
        let mut unused = gradient.clone();
        for (n, slope) in gradient.iter().enumerate() {
            let mut at = |step: f64| {
                let mut moved = point.clone();
                moved[n] += step;
                problem.loss(&moved, 0.7, &mut unused)
            };
            let measured = (at(1e-5) - at(-1e-5)) / 2e-5;
            let error = (measured - slope).abs();
            assert!(error < 1e-5, "{link:?} {n}: {measured} {slope}");
        }
    }
}

#[test]
fn a_fit_learns_from_vectors_and_keeps_good_zero_shot_labels() {
    let rows = answers(120, 0.0);
    let found = fit(&rows, Link::Softmax).unwrap();
    let (gain, error) = found.gain;
    assert!(gain > 3.0 * error, "{gain} ± {error}");
    assert!(found.strength < 100.0, "{}", found.strength);
    let problem = Problem::new(&rows, Link::Softmax).unwrap();
    let (before, after) = (&problem.prior, &found.held_out);
    assert!(share_right(after, &rows) > share_right(before, &rows) + 0.2);
    let again = fit(&rows, Link::Softmax).unwrap();
    assert_eq!(found, again, "a second fit differs");
    // Zero-shot labels that are always correct are kept.
    let rows = answers(40, 8.0);
    let found = fit(&rows, Link::Softmax).unwrap();
    assert!(share_right(&found.held_out, &rows) > 0.99);
}

#[test]
fn poor_zero_shot_logits_are_given_up() {
    let mut rows = answers(60, 0.0);
    for (row, answer) in rows.iter_mut().enumerate() {
        // Confident and unrelated to the right class.
        answer.logits = (0..3)
            .map(|class| 6.0 * wave(row + 50, class + 2))
            .collect();
    }
    let found = fit(&rows, Link::Softmax).unwrap();
    assert!(found.scale <= 0.25, "{}", found.scale);
    assert_eq!(found.parameters.scale, Array1::from_elem(3, found.scale));
    assert!(share_right(&found.held_out, &rows) > 0.7);
    let good = answers(60, 3.0);
    assert!(fit(&good, Link::Softmax).unwrap().scale >= 0.75);
}

#[test]
fn held_out_figures_of_answers_that_teach_nothing_show_no_gain() {
    // The classes are shuffled, so nothing predicts them. Of many candidates, some fit by chance.
    let mut gains = 0.0;
    for seed in 0..4 {
        let mut rows = answers(30, 0.0);
        let mut right: Vec<Vec<f64>> = rows.iter().map(|row| row.right.clone()).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut right);
        for (row, right) in rows.iter_mut().zip(right) {
            row.right = right;
            row.logits.fill(0.0);
        }
        let found = fit(&rows, Link::Softmax).unwrap();
        // The shares of the classes can be learned; they are the only gain.
        let shares = (0..3).map(|class| rows.iter().filter(|row| row.right[class] > 0.5).count());
        let entropy: f64 = shares
            .filter(|n| *n > 0)
            .map(|n| -float(n) / 30.0 * (float(n) / 30.0).ln())
            .sum();
        gains += found.gain.0 - (3f64.ln() - entropy);
    }
    assert!(gains < 0.0, "{gains}");
}

#[test]
fn initial_parameters_keep_the_zero_shot_logits() {
    let rows = answers(10, 0.5);
    let problem = Problem::new(&rows, Link::Softmax).unwrap();
    let parameters = problem.parameters(&problem.start());
    let fitted = parameters.logits(&problem.prior, &problem.vectors);
    assert_eq!(fitted, problem.prior);
}

#[test]
fn without_vectors_each_class_has_a_scale_and_a_bias() {
    let mut rows = answers(90, 0.0);
    for row in &mut rows {
        // The model favours the first class in every text.
        row.logits.clone_from(&row.right);
        row.logits[0] += 2.0;
        row.vector.clear();
    }
    let found = fit(&rows, Link::Softmax).unwrap();
    assert!(found.parameters.weights.is_empty());
    let bias = &found.parameters.bias;
    assert!(bias[0] < bias[1] - 0.5, "{bias}");
    assert!(share_right(&found.held_out, &rows) > 0.95);
}

#[test]
fn answers_that_determine_no_fit_are_an_error() {
    let rows = answers(60, 0.0);
    assert_eq!(fit(&rows[..4], Link::Softmax), Err(FitError::TooFew(4)));
    let alike: Vec<Answer> = rows
        .iter()
        .filter(|row| row.right[1] > 0.5)
        .cloned()
        .collect();
    assert_eq!(
        fit(&alike, Link::Softmax),
        Err(FitError::OneClass(alike.len()))
    );
    let mut broken = rows;
    broken[3].vector[0] = f32::NAN;
    assert_eq!(fit(&broken, Link::Softmax), Err(FitError::NotFinite));
    let length = broken[0].vector.len();
    broken[3].vector.clear();
    assert_eq!(
        fit(&broken, Link::Softmax),
        Err(FitError::Uneven(length, 0))
    );
}
