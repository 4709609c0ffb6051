//! Minimises a smooth convex function with L-BFGS (Nocedal and Wright, Numerical Optimization, algorithm 7.5).

use std::collections::VecDeque;

/// Number of latest (step, gradient change) pairs that approximate the curvature.
const MEMORY: usize = 10;
/// Maximum number of steps. A fit to 1,000 answers takes about 40.
const MOST_STEPS: usize = 500;
/// Minimum reduction of the function by a step, as a share of what the slope predicts (Armijo's condition).
const SUFFICIENT: f64 = 1e-4;
/// Maximum number of halvings of a step; a function that has still not decreased is flat to the last digit.
const MOST_HALVINGS: usize = 40;

/// Moves a point to the minimum of a function. No component of the gradient there is larger than `tolerance`, unless
/// the function is flat to the last digit. Returns false if the limit on steps is reached first.
///
/// `function` returns the value at a point and writes the gradient into its second argument.
pub(super) fn minimise(
    point: &mut [f64],
    tolerance: f64,
    function: impl Fn(&[f64], &mut [f64]) -> f64,
) -> bool {
    let mut moved = point.to_vec();
    let mut gradient = vec![0.0; point.len()];
    let mut value = function(point, &mut gradient);
    let mut memory: VecDeque<(Vec<f64>, Vec<f64>)> = VecDeque::with_capacity(MEMORY);
    for _ in 0..MOST_STEPS {
        if gradient.iter().all(|slope| slope.abs() <= tolerance) {
            return true;
        }
        let direction = direction(&gradient, &memory);
        let slope = dot(&gradient, &direction);
        // Without a history, the gradient does not determine the step size.
        let mut step = if memory.is_empty() {
            1.0 / dot(&gradient, &gradient).sqrt().max(1.0)
        } else {
            1.0
        };
        let mut new_gradient = vec![0.0; point.len()];
        let mut halvings = 0;
        let new_value = loop {
            for ((moved, x), d) in moved.iter_mut().zip(&*point).zip(&direction) {
                *moved = x + step * d;
            }
            let new_value = function(&moved, &mut new_gradient);
            if new_value <= value + SUFFICIENT * step * slope {
                break new_value;
            }
            halvings += 1;
            if halvings == MOST_HALVINGS {
                return true;
            }
            step /= 2.0;
        };
        let (shift, bends) = (minus(&moved, point), minus(&new_gradient, &gradient));
        // Rounding may leave a pair without curvature, and such a pair would make the direction point uphill.
        if dot(&shift, &bends) > f64::EPSILON * dot(&bends, &bends) {
            if memory.len() == MEMORY {
                memory.pop_front();
            }
            memory.push_back((shift, bends));
        }
        point.copy_from_slice(&moved);
        (gradient, value) = (new_gradient, new_value);
    }
    false
}

/// Returns the direction of the next step: minus the gradient, times the approximated inverse of the curvature.
fn direction(gradient: &[f64], memory: &VecDeque<(Vec<f64>, Vec<f64>)>) -> Vec<f64> {
    let mut direction: Vec<f64> = gradient.iter().map(|slope| -slope).collect();
    let mut factors = Vec::with_capacity(memory.len());
    for (moves, bends) in memory.iter().rev() {
        let factor = dot(moves, &direction) / dot(moves, bends);
        add(&mut direction, -factor, bends);
        factors.push(factor);
    }
    if let Some((moves, bends)) = memory.back() {
        let scale = dot(moves, bends) / dot(bends, bends);
        for x in &mut direction {
            *x *= scale;
        }
    }
    for ((moves, bends), factor) in memory.iter().zip(factors.into_iter().rev()) {
        let back = dot(bends, &direction) / dot(moves, bends);
        add(&mut direction, factor - back, moves);
    }
    direction
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn minus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Adds `factor` times `b` to `a`.
fn add(a: &mut [f64], factor: f64, b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += factor * b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_a_narrow_valley_is_found() {
        // A quadratic function whose curvatures differ by a factor of 10,000, with its minimum at 1, 2, 3, 4.
        let curvatures = [1.0, 20.0, 500.0, 10_000.0];
        let mut point = [-7.0; 4];
        let is_converged = minimise(&mut point, 1e-9, |x, gradient| {
            let mut value = 0.0;
            for ((n, x), curvature) in (1..).zip(x).zip(curvatures) {
                let away = x - f64::from(n);
                gradient[usize::try_from(n - 1).unwrap()] = curvature * away;
                value += curvature * away * away / 2.0;
            }
            value
        });
        assert!(is_converged);
        for (n, x) in (1..).zip(point) {
            assert!((x - f64::from(n)).abs() < 1e-8, "{n}: {x}");
        }
    }
}
