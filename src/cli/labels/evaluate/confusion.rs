//! The confusions as a square of 80 columns: a row for each right label, a letter for each given one.

use crate::cli::labels::NONE;
use crate::review::evaluate::Evaluation;
use topicmill_score::LabelSet;

/// Columns of a terminal.
const WIDTH: usize = 80;
/// More letters do not fit into it.
const MOST_LABELS: usize = 16;
/// Letters and a blank that a number takes at least.
const NARROWEST: usize = 3;
/// Letters of a name that tell it from others.
const SHORTEST_NAME: usize = 8;
/// What stands for no label.
const NO_LABEL: &str = "–";

/// The square, and what its numbers are; `None` where it is too wide.
pub(super) fn square(of: &Evaluation, set: &LabelSet) -> Option<String> {
    let labels = set.labels.len();
    if labels > MOST_LABELS {
        return None;
    }
    let mut counts = vec![vec![0; labels + 1]; labels + 1];
    for cell in &of.confusion {
        counts[cell.gold][cell.given] = cell.posts;
    }
    let rows = labels + usize::from(counts[labels].iter().any(|posts| *posts > 0));
    let columns = labels + usize::from(counts.iter().any(|row| row[labels] > 0));
    let most = counts.iter().flatten().max().copied().unwrap_or(0);
    let digits = most.to_string().len() + 1;
    // Where the numbers are too wide, hundredths of a row are not.
    let is_share = columns * digits + SHORTEST_NAME + 2 > WIDTH;
    let cell = if is_share { 4 } else { digits }.max(NARROWEST);
    let room = WIDTH.saturating_sub(columns * cell + 2);
    let name = |row: usize| set.labels.get(row).map_or(NONE, |label| &label.slug);
    let longest = (0..rows).map(|row| name(row).chars().count()).max();
    let room = room.min(longest.unwrap_or(0));
    let mut text = if is_share {
        "Right labels (rows) and given ones (columns), in hundredths of the row\n".to_owned()
    } else {
        "Right labels (rows) and given ones (columns)\n".to_owned()
    };
    let header: String = (0..columns)
        .map(|column| format!("{:>cell$}", letter(column, labels)))
        .collect();
    text.push_str(format!("{:1$}{header}", "", room + 2).trim_end());
    text.push('\n');
    for (row, counts) in counts.iter().enumerate().take(rows) {
        let all: usize = counts.iter().sum();
        let numbers: String = counts[..columns]
            .iter()
            .map(|posts| match posts {
                0 => format!("{:>cell$}", "·"),
                // No row without posts comes here: it has nothing but zeros.
                posts if is_share => format!("{:>cell$}", (100 * posts + all / 2) / all),
                posts => format!("{posts:>cell$}"),
            })
            .collect();
        let name = shortened(name(row), room);
        text.extend([letter(row, labels), format!(" {name:room$}{numbers}\n")]);
    }
    Some(text)
}

fn letter(place: usize, labels: usize) -> String {
    let letter = (place < labels).then(|| ('A'..='Z').nth(place)).flatten();
    letter.map_or_else(|| NO_LABEL.to_owned(), String::from)
}

fn shortened(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let head: String = name.chars().take(room.saturating_sub(1)).collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::evaluate::{Judged, evaluate};
    use topicmill_score::{Label, Mode};

    fn set(labels: usize) -> LabelSet {
        let label = |place: usize| Label {
            slug: format!("a-long-name-{place}"),
            label: String::new(),
            descriptions: vec![],
        };
        LabelSet {
            name: "t".into(),
            template: "About {}.".into(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            background: None,
            labels: (0..labels).map(label).collect(),
        }
    }

    fn rows(labels: usize, posts: usize) -> Vec<Judged> {
        let row = |place: usize| Judged {
            right: if place.is_multiple_of(7) {
                vec![]
            } else {
                vec![place % labels]
            },
            best: place % 3 % labels,
            score: 0.5,
            abstained: place.is_multiple_of(5),
        };
        (0..posts).map(row).collect()
    }

    #[test]
    fn sixteen_labels_fit_eighty_columns_however_many_the_posts() {
        for posts in [0, 10, 1_000, 20_000, 500_000] {
            for labels in [1, 2, 16] {
                let of = evaluate(&rows(labels, posts.min(2_000)), labels);
                let mut of = of;
                for cell in &mut of.confusion {
                    cell.posts *= posts / posts.clamp(1, 2_000);
                }
                let text = square(&of, &set(labels)).unwrap();
                for line in text.lines() {
                    assert!(line.chars().count() <= WIDTH, "{line}");
                }
                let columns = if posts > 0 { labels + 1 } else { labels };
                let header = text.lines().nth(1).unwrap();
                assert_eq!(header.split_whitespace().count(), columns, "{text}");
            }
        }
        assert_eq!(square(&evaluate(&[], 17), &set(17)), None);
    }

    #[test]
    fn rows_are_what_is_right_and_columns_what_was_given() {
        let of = evaluate(
            &[
                Judged {
                    right: vec![1],
                    best: 0,
                    score: 0.5,
                    abstained: false,
                },
                Judged {
                    right: vec![],
                    best: 0,
                    score: 0.5,
                    abstained: true,
                },
            ],
            2,
        );
        let text = square(&of, &set(2)).unwrap();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["A", "B", "–"]);
        assert_eq!(lines[2][2..], ["1", "·", "·"]);
        assert_eq!(lines[3][lines[3].len() - 3..], ["·", "·", "1"]);
    }
}
