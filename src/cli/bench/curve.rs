//! The curve of `bench cascade`: rows of figures in, an SVG out, with the cost of a post to the right and how many labels
//! stay the same upwards. Each size of shortlist has a line, and a point on it is a certainty.

use serde_json::Value;

use crate::report::svg::{Anchor, Svg};

const WIDTH: f64 = 640.0;
/// Left and right end of the place where the lines are, and its height.
const PLACE: (f64, f64, f64) = (56.0, 620.0, 300.0);
/// Names of sizes in a line above it, and how wide and high each is.
const NAMES: (usize, f64, f64) = (6, 94.0, 18.0);
/// A line and a dot of each size of shortlist, in turns.
const LOOKS: [(&str, &str); 3] = [
    ("stroke", "mark"),
    ("stroke-warm", "mark-warm"),
    ("stroke-grey", "mark-grey"),
];

/// A point: what it costs, how many are the same with an interval, and what is said of it.
struct Point {
    labels: u64,
    cost: f64,
    same: f64,
    range: Option<(f64, f64)>,
    sure: Option<f64>,
}

impl Point {
    fn of(row: &Value) -> Option<Self> {
        let number = |name: &str| row[name].as_f64();
        Some(Self {
            labels: row["labels"].as_u64()?,
            cost: number("s/post")?,
            same: number("same %")?,
            range: number("at least %").zip(number("at most %")),
            sure: number("sure"),
        })
    }

    fn told(&self) -> String {
        let sure = self.sure.map(|sure| format!("sure of {sure}, "));
        format!(
            "{}{} labels: {} % the same, {} s a post",
            sure.unwrap_or_default(),
            self.labels,
            self.same,
            self.cost
        )
    }
}

/// Draws the rows of `bench cascade`, of which the last is the large model alone.
pub fn draw(title: &str, rows: &[Value]) -> String {
    let points: Vec<Point> = rows.iter().filter_map(Point::of).collect();
    let mut sizes: Vec<u64> = points.iter().map(|point| point.labels).collect();
    sizes.dedup();
    let (left, right, height) = PLACE;
    let (across, wide, high) = NAMES;
    let top = 26.0 + high * real(sizes.len().div_ceil(across));
    let bottom = top + height;
    let mut svg = Svg::new(WIDTH, bottom + 50.0);
    let dearest = points.iter().map(|point| point.cost).fold(0.0, f64::max);
    let (step, digits) = step(dearest);
    let steps = (dearest / step).ceil().max(1.0);
    let dearest = step * steps;
    let lows = points
        .iter()
        .map(|point| point.range.map_or(point.same, |range| range.0));
    // A whole ten below the lowest, so that differences near 100 are seen.
    let floor = lows.fold(100.0, f64::min);
    let floor = ((floor / 10.0).floor() * 10.0).clamp(0.0, 90.0);
    let x = |cost: f64| left + (right - left) * cost / dearest;
    let y = |same: f64| bottom - (bottom - top) * (same - floor) / (100.0 - floor);
    for tick in 0..=5 {
        let same = floor + (100.0 - floor) * f64::from(tick) / 5.0;
        svg.line((left, y(same)), (right, y(same)), "axis");
        let at = (left - 7.0, y(same) + 4.0);
        svg.text(at, Anchor::End, "", &format!("{same:.0} %"), left - 7.0);
    }
    let costs = std::iter::successors(Some(0.0), |cost| Some(cost + step));
    for cost in costs.take_while(|cost| *cost < dearest + step / 2.0) {
        let at = (x(cost), bottom + 18.0);
        svg.text(at, Anchor::Middle, "", &format!("{cost:.digits$}"), 90.0);
    }
    let middle = f64::midpoint(left, right);
    let below = (middle, bottom + 40.0);
    svg.text(below, Anchor::Middle, "name", "seconds a post", 300.0);
    let above = "posts with the same outcome as by the large model alone";
    svg.text((left, top - 10.0), Anchor::Start, "name", above, 560.0);
    let alone = points.last().map_or(0, |point| point.labels);
    for (place, labels) in sizes.iter().enumerate() {
        let (stroke, mark) = LOOKS[place % LOOKS.len()];
        let mut line: Vec<&Point> = points.iter().filter(|p| p.labels == *labels).collect();
        // Whoever keeps nothing stands where nobody is sure enough.
        let sure = |point: &Point| point.sure.unwrap_or(f64::INFINITY);
        line.sort_by(|a, b| sure(a).total_cmp(&sure(b)));
        let places: Vec<(f64, f64)> = line.iter().map(|p| (x(p.cost), y(p.same))).collect();
        svg.path(&places, stroke);
        for point in line {
            let at = (x(point.cost), y(point.same));
            if let Some((low, high)) = point.range {
                svg.line((at.0, y(low)), (at.0, y(high)), "axis");
            }
            svg.dot(at, 3.5, mark, &point.told());
            if let Some(sure) = point.sure {
                let beside = (at.0 + 6.0, at.1 + 14.0);
                svg.text(beside, Anchor::Start, "", &sure.to_string(), 40.0);
            }
        }
        let name = if *labels == alone {
            "all labels".to_owned()
        } else {
            format!("{labels} labels")
        };
        let at = (
            left + wide * real(place % across),
            high * real(place / across),
        );
        svg.dot((at.0 + 5.0, at.1 + 8.0), 4.0, mark, &name);
        svg.text(
            (at.0 + 14.0, at.1 + 12.0),
            Anchor::Start,
            "",
            &name,
            wide - 18.0,
        );
    }
    svg.alone(
        title,
        "How many posts have the same outcome as by the large model alone, with 95 % intervals, against the time that \
         a post takes. The number at a point says how sure the small model must be to keep a post.",
    )
}

/// About five steps to a number, each a round number; with its decimals.
fn step(most: f64) -> (f64, usize) {
    let mut power = 1e-4;
    for decimals in (0..=4).rev() {
        for factor in [1.0, 2.0, 5.0] {
            if most <= 6.0 * factor * power {
                return (factor * power, decimals);
            }
        }
        power *= 10.0;
    }
    (most / 5.0, 0)
}

#[expect(clippy::cast_precision_loss, reason = "a few names")]
fn real(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn costs_have_round_steps() {
        for (most, expected) in [
            (0.0, (0.0001, 4)),
            (0.038, (0.01, 2)),
            (0.5, (0.1, 1)),
            (1.3, (0.5, 1)),
            (29.0, (5.0, 0)),
            (1e6, (2e5, 0)),
        ] {
            let (found, decimals) = step(most);
            assert!((found - expected.0).abs() < 1e-9, "{most}: {found}");
            assert_eq!(decimals, expected.1, "{most}");
        }
    }

    #[test]
    fn a_curve_has_a_line_for_each_size_and_a_dot_for_each_row() {
        let row = |sure: Option<f64>, labels: u64, same: f64, cost: f64| {
            json!({"sure": sure, "labels": labels, "same %": same, "at least %": same - 4.0,
                   "at most %": 100.0, "s/post": cost})
        };
        let rows = [
            row(None, 4, 93.0, 0.4),
            row(Some(0.9), 4, 90.0, 0.2),
            row(Some(0.9), 16, 96.0, 0.5),
            json!({"sure": null, "labels": 16, "same %": 100.0, "s/post": 1.0}),
        ];
        let drawn = draw("a <title>", &rows);
        assert_eq!(drawn.matches("<polyline").count(), 2);
        // Four points, and two in the legend.
        assert_eq!(drawn.matches("<circle").count(), 6);
        assert!(
            drawn.contains("a &lt;title&gt;") && drawn.contains("80 %"),
            "{drawn}"
        );
        assert!(!drawn.contains("NaN") && !draw("none", &[]).contains("NaN"));
    }
}
