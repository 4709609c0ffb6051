//! Simulates samples of answers, and prints how often the intervals of the labels' shares contain the true share.
//!
//!     cargo bench --bench shares -- [FILE.csv …]
//!
//! A FILE has a gold label and an assigned label on each line. It stands for all posts: answers are drawn from it with
//! replacement. Without files, three made-up sets are used, whose labels are right more or less often. The output is
//! Markdown.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

use topicmill_review::calibrate::Proportion;
use topicmill_review::evaluate::{EvaluatedPost, estimate_shares};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Samples for each number of answers.
const DRAWS: usize = 400;
const SEED: u64 = 5;

/// All posts: the position of the gold label and of the assigned label of each.
struct Posts {
    name: String,
    cells: Vec<(usize, usize)>,
    labels: usize,
}

fn main() -> Outcome<()> {
    let files = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut sets: Vec<Posts> = files.map(|file| read(&file)).collect::<Outcome<_>>()?;
    if sets.is_empty() {
        sets = [0.9, 0.7, 0.5].map(made_up).into();
    }
    let mut out = std::io::stdout().lock();
    shares(&sets, &mut out)
}

fn read(path: &str) -> Outcome<Posts> {
    let text = std::fs::read_to_string(path)?;
    let pairs = text.lines().map(|line| line.split_once(','));
    let pairs: Option<Vec<(&str, &str)>> = pairs.collect();
    let pairs = pairs.ok_or_else(|| format!("`{path}` has a line without a comma"))?;
    let names: BTreeSet<&str> = pairs.iter().flat_map(|(a, b)| [*a, *b]).collect();
    let names: Vec<&str> = names.into_iter().collect();
    let place = |name: &str| names.binary_search(&name).expect("a name from the pairs");
    Ok(Posts {
        name: path.rsplit('/').next().unwrap_or(path).to_owned(),
        cells: pairs.iter().map(|(a, b)| (place(a), place(b))).collect(),
        labels: names.len(),
    })
}

/// Makes up posts with sixteen labels, the most frequent of which is six times as frequent as the rarest. A wrong label
/// is more often a frequent one.
fn made_up(right: f64) -> Posts {
    let mut random = fastrand::Rng::with_seed(SEED);
    let pool: Vec<usize> = (0..16)
        .flat_map(|label| vec![label; 6 - label / 3])
        .collect();
    let mut any = || pool[random.usize(..pool.len())];
    let pairs: Vec<(usize, usize)> = (0..20_000).map(|_| (any(), any())).collect();
    let cells = pairs.into_iter().map(|(gold, other)| {
        let is_right = random.f64() < right;
        (gold, if is_right { gold } else { other })
    });
    Posts {
        name: format!("made up, {right}"),
        cells: cells.collect(),
        labels: 16,
    }
}

/// Returns the share of all posts with each label, gold or assigned.
fn label_shares(posts: &Posts, of: fn(&(usize, usize)) -> usize) -> Vec<f64> {
    let mut shares = vec![0.0; posts.labels];
    for cell in &posts.cells {
        shares[of(cell)] += 1.0 / float(posts.cells.len());
    }
    shares
}

/// Compares the intervals of labels' shares: the share among the answers (Wilson), the mean error of the assigned labels
/// (Bonett and Price), and the estimate that `labels evaluate` prints.
fn shares(sets: &[Posts], out: &mut impl Write) -> Outcome<()> {
    writeln!(
        out,
        "| labels | right | answers | interval | mean coverage | lowest | mean width | of the mean error's | of Wilson's, highest |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
    for posts in sets {
        let (truth, assigned) = (
            label_shares(posts, |one| one.0),
            label_shares(posts, |one| one.1),
        );
        let right = posts.cells.iter().filter(|(gold, given)| gold == given);
        let right = float(right.count()) / float(posts.cells.len());
        for answers in [30, 50, 100, 200] {
            let mut random = fastrand::Rng::with_seed(SEED);
            let mut found = [(); 3].map(|()| vec![(0.0, 0.0); posts.labels]);
            for _ in 0..DRAWS {
                let drawn = || posts.cells[random.usize(..posts.cells.len())];
                let sample: Vec<(usize, usize)> =
                    std::iter::repeat_with(drawn).take(answers).collect();
                let intervals = [
                    wilson(&sample, posts.labels),
                    mean_error(&sample, &assigned),
                    ours(&sample, &assigned),
                ];
                for (found, intervals) in found.iter_mut().zip(intervals) {
                    for (label, (low, high)) in intervals.into_iter().enumerate() {
                        let (low, high) = (low.max(0.0), high.min(1.0));
                        found[label].0 +=
                            f64::from(u8::from(low <= truth[label] && truth[label] <= high))
                                / float(DRAWS);
                        found[label].1 += (high - low) / float(DRAWS);
                    }
                }
            }
            // A label that no post has cannot be missed.
            let kept: Vec<usize> = (0..posts.labels)
                .filter(|label| truth[*label] > 0.0)
                .collect();
            let mean = |of: &dyn Fn(usize) -> f64| {
                kept.iter().map(|label| of(*label)).sum::<f64>() / float(kept.len())
            };
            let width = |way: usize| mean(&|label| found[way][label].1);
            for (way, name) in [
                "answers alone (Wilson)",
                "mean error (Bonett and Price)",
                "strata (Jeffreys)",
            ]
            .into_iter()
            .enumerate()
            {
                let least = kept
                    .iter()
                    .map(|label| found[way][*label].0)
                    .fold(1.0, f64::min);
                let widest = kept
                    .iter()
                    .map(|label| found[way][*label].1 / found[0][*label].1)
                    .fold(0.0, f64::max);
                writeln!(
                    out,
                    "| {} | {right:.2} | {answers} | {name} | {:.3} | {least:.3} | {:.3} | {:.2} | {widest:.2} |",
                    posts.name,
                    mean(&|label| found[way][label].0),
                    width(way),
                    width(way) / width(1),
                )?;
            }
        }
    }
    Ok(())
}

type Interval = (f64, f64);

fn wilson(sample: &[(usize, usize)], labels: usize) -> Vec<Interval> {
    let of = |label| sample.iter().filter(|(gold, _)| *gold == label).count();
    let shares = (0..labels).map(|label| Proportion::new(of(label), sample.len()));
    shares.map(|share| (share.low, share.high)).collect()
}

/// Returns the assigned share plus the mean error, with the adjusted interval of a difference between paired
/// proportions.
fn mean_error(sample: &[(usize, usize)], assigned: &[f64]) -> Vec<Interval> {
    let interval = |(label, assigned): (usize, &f64)| {
        let only = |gold: bool| {
            let only = sample
                .iter()
                .filter(|(a, b)| (*a == label) == gold && (*b == label) != gold);
            (float(only.count()) + 1.0) / (float(sample.len()) + 2.0)
        };
        let (missed, wrong) = (only(true), only(false));
        let apart = missed - wrong;
        let half = 1.96 * ((missed + wrong - apart * apart) / (float(sample.len()) + 2.0)).sqrt();
        (assigned + apart - half, assigned + apart + half)
    };
    assigned.iter().enumerate().map(interval).collect()
}

fn ours(sample: &[(usize, usize)], assigned: &[f64]) -> Vec<Interval> {
    let rows = sample.iter().map(|(gold, given)| EvaluatedPost {
        right: vec![*gold],
        best: *given,
        score: 0.5,
        abstained: false,
    });
    // The last share is that of posts without a label.
    let shares: Vec<f64> = assigned.iter().copied().chain([0.0]).collect();
    let estimates = estimate_shares(&rows.collect::<Vec<_>>(), &shares);
    estimates[..assigned.len()]
        .iter()
        .map(|one| (one.low, one.high))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of posts")]
fn float(n: usize) -> f64 {
    n as f64
}
