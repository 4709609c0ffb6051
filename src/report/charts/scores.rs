//! How sure the model is: scores of all posts, and of each label.

use super::super::Report;
use super::super::data::BINS;
use super::super::drift::real;
use super::super::svg::{Anchor, Svg};
use super::super::table::Table;
use super::{Chart, WIDTH, stack};
use crate::look::{percent, score, whole};
use crate::store::Fate;

/// Columns of the drawing: two of the numbers each.
const COLUMNS: usize = BINS / 2;

/// What is drawn, from the ground up.
const KINDS: [Fate; 3] = [Fate::Labelled, Fate::Unsure, Fate::Other];
const NAMES: [(&str, &str); 3] = [
    ("mark", "with a label"),
    ("mark-warm", "unsure"),
    ("mark-grey", "other"),
];

fn counts(report: &Report) -> Vec<[u64; 3]> {
    let mut columns = vec![[0; 3]; COLUMNS];
    for (kind, fate) in KINDS.into_iter().enumerate() {
        for line in report.lines.iter().filter(|line| line.fate == fate) {
            for (bin, posts) in line.bins.iter().enumerate() {
                columns[(bin / 2).min(COLUMNS - 1)][kind] += posts;
            }
        }
    }
    columns
}

/// The best scores of all posts.
pub fn chart(report: &Report) -> Option<Chart> {
    let scored = report.scored();
    if scored == 0 || !report.scores_are_shares {
        return None;
    }
    let counts = counts(report);
    let rows = (0..COLUMNS).map(|column| {
        let from = real(column as u64) / real(COLUMNS as u64);
        let numbers = counts[column].iter().map(|posts| whole(*posts));
        std::iter::once(score(from)).chain(numbers).collect()
    });
    Some(Chart {
        id: "scores",
        title: "How sure the labels are".to_owned(),
        read: format!(
            "The best score of each post: the further right, the surer. {}",
            none(report, scored)
        ),
        table: Table::new(1, &["score from", "with a label", "unsure", "other"], rows),
        drawn: draw(report, &counts),
    })
}

/// How many posts have no label, and why.
fn none(report: &Report, scored: u64) -> String {
    let share = |fate| percent(real(report.of(fate)) / real(scored));
    let other = (report.of(Fate::Other) > 0).then(|| {
        let share = share(Fate::Other);
        format!("{share} of the posts are other, because a topic beside the labels fits better")
    });
    let unsure = (report.of(Fate::Unsure) > 0).then(|| {
        let (share, threshold) = (share(Fate::Unsure), score(report.threshold));
        format!("{share} of the posts are unsure, because their best score lies under the threshold of {threshold}")
    });
    match [other, unsure].into_iter().flatten().collect::<Vec<_>>() {
        none if none.is_empty() => "Each post has a label.".to_owned(),
        why => format!("{}.", why.join("; ")),
    }
}

fn draw(report: &Report, counts: &[[u64; 3]]) -> Svg {
    let mut svg = Svg::new(WIDTH, 220.0);
    let (top, bottom) = (44.0, svg.height - 26.0);
    let name = |column| {
        let from = real(column as u64) / real(COLUMNS as u64);
        format!("{} to {}", score(from), score(from + 0.04))
    };
    let (left, _) = stack(&mut svg, NAMES, counts, (top, bottom), name);
    for tenth in [0_u32, 2, 4, 6, 8, 10] {
        let share = f64::from(tenth) / 10.0;
        let x = left + (WIDTH - left) * share;
        let anchor = match tenth {
            0 => Anchor::Start,
            10 => Anchor::End,
            _ => Anchor::Middle,
        };
        svg.text((x, bottom + 18.0), anchor, "", &format!("{share:.1}"), 40.0);
    }
    if report.threshold > 0.0 && report.threshold <= 1.0 {
        let x = left + (WIDTH - left) * report.threshold;
        svg.line((x, top - 14.0), (x, bottom), "stroke-warm");
        let said = format!("threshold {}", score(report.threshold));
        let (anchor, at) = if x > WIDTH / 2.0 {
            (Anchor::End, x - 6.0)
        } else {
            (Anchor::Start, x + 6.0)
        };
        svg.text((at, top - 5.0), anchor, "warm", &said, WIDTH / 2.0);
    }
    svg
}
