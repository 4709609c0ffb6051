//! Simulates samples of answers, and prints how often intervals contain the true share: of each label, with posts that
//! were stored later, with annotators who disagree, of groups of posts, and from samples that are not random.
//!
//!     cargo bench --bench shares -- [FILE.csv …]
//!
//! A FILE has a gold label and an assigned label on each line. It stands for all posts: answers are drawn from it with
//! replacement. Without files, three made-up sets are used, whose labels are right more or less often. The output is
//! Markdown.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;

use topicmill_review::evaluate::{
    Estimate, EvaluatedPost, GroupShare, GroupShares, Proportion, SampledPart, Stratum,
    estimate_shares, group_differences, mixes, stratified_share,
};
use topicmill_store::FrameCell;

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
    shares(&sets, &mut out)?;
    late_posts(&mut out)?;
    disputes(&mut out)?;
    groups(&mut out)?;
    mixes_of_samples(&mut out)
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

/// Compares the intervals of labels' shares: the share among the answers (Wilson), the mean error of the assigned
/// labels (Bonett and Price), and the estimate that `labels evaluate` prints.
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

/// Draws a number of correct labels among `answers`.
fn drawn(random: &mut fastrand::Rng, answers: usize, right: f64) -> usize {
    (0..answers).filter(|_| random.f64() < right).count()
}

/// The share of right labels is 64 % among the early posts and 20 % among as many later posts.
fn late_posts(out: &mut impl Write) -> Outcome<()> {
    writeln!(
        out,
        "\n| answers, early and late | estimate | of | coverage | mean width |\n|---|---|---|---|---|"
    )?;
    let (early, late) = (0.64, 0.2);
    let both = f64::midpoint(early, late);
    for (first, later) in [(100, 0), (100, 30), (100, 100)] {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut found = [(0.0, 0.0); 3];
        for _ in 0..DRAWS * 10 {
            let (a, b) = (
                drawn(&mut random, first, early),
                drawn(&mut random, later, late),
            );
            let pooled = Proportion::new(a + b, first + later);
            let of_early = Proportion::new(a, first);
            let stratum = |sampled, right| Stratum {
                weight: 0.5,
                sampled,
                least: right,
                most: right,
                assumed: 0.5,
            };
            let waves = stratified_share(&[stratum(first, a), stratum(later, b)]);
            let intervals = [
                (pooled.low, pooled.high, both),
                (of_early.low, of_early.high, early),
                (waves.low, waves.high, both),
            ];
            for (found, (low, high, truth)) in found.iter_mut().zip(intervals) {
                found.0 += f64::from(u8::from(low <= truth && truth <= high)) / float(DRAWS * 10);
                found.1 += (high - low) / float(DRAWS * 10);
            }
        }
        let ways = [
            ("all answers alike", "all posts"),
            ("early answers", "early posts"),
            ("weighted by wave", "all posts"),
        ];
        // Without later answers, no estimate is weighted by wave.
        for ((name, of), (coverage, width)) in ways.into_iter().zip(found).take(2 + later.min(1)) {
            writeln!(
                out,
                "| {first}, {later} | {name} | {of} | {coverage:.3} | {width:.3} |"
            )?;
        }
    }
    Ok(())
}

/// Half of the posts are hard: annotators agree about 60 % of these, and labels are right less often. Ada's answer is
/// taken to be the right one.
fn disputes(out: &mut impl Write) -> Outcome<()> {
    writeln!(
        out,
        "\n| answers | posts with different answers | coverage | mean width |\n|---|---|---|---|"
    )?;
    let (easy, hard, agree) = (0.65, 0.2, 0.6);
    let truth = f64::midpoint(easy, hard);
    for answers in [50, 100, 200] {
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut found = [(0.0, 0.0); 3];
        for _ in 0..DRAWS * 10 {
            // Right by Ada's answer, by Ada's or Ben's, and by both; and undisputed.
            let (mut right, mut by_any, mut least, mut kept) = (0, 0, 0, 0);
            for _ in 0..answers {
                let is_hard = random.bool();
                let is_right = random.f64() < if is_hard { hard } else { easy };
                let is_disputed = is_hard && random.f64() >= agree;
                // If Ada disagrees with the label, half of those who disagree with her agree with it.
                let others = is_disputed && !is_right && random.bool();
                right += usize::from(is_right);
                by_any += usize::from(is_right || others);
                least += usize::from(is_right && !is_disputed);
                kept += usize::from(!is_disputed);
            }
            let intervals = [
                Proportion::new(least, kept),
                Proportion::new(least, answers).between(Proportion::new(by_any, answers)),
                Proportion::new(right, answers),
            ];
            for (found, interval) in found.iter_mut().zip(intervals) {
                let is_in = interval.low <= truth && truth <= interval.high;
                found.0 += f64::from(u8::from(is_in)) / float(DRAWS * 10);
                found.1 += (interval.high - interval.low) / float(DRAWS * 10);
            }
        }
        let names = ["left out", "bounds", "decided by Ada"];
        for (name, (coverage, width)) in names.into_iter().zip(found) {
            writeln!(out, "| {answers} | {name} | {coverage:.3} | {width:.3} |")?;
        }
    }
    Ok(())
}

/// Compares the shares of labels in two groups: posts with the same shares, and posts with different ones.
fn groups(out: &mut impl Write) -> Outcome<()> {
    writeln!(
        out,
        "\n| second group | answers in each | mean coverage | lowest | mean width | samples with p < 0.05 (Holm) |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    let same = made_up(0.7);
    let mut other = made_up(0.7);
    // Half of the labels are twice as frequent.
    let half: Vec<_> = (other.cells.iter().copied())
        .filter(|(gold, _)| *gold < 8)
        .collect();
    other.cells.extend(half);
    for (name, second) in [("same shares", &same), ("other shares", &other)] {
        let truth = [&same, second].map(|posts| label_shares(posts, |one| one.0));
        let assigned = [&same, second].map(|posts| label_shares(posts, |one| one.1));
        for answers in [30, 50, 100, 200] {
            let mut random = fastrand::Rng::with_seed(SEED);
            let (mut covered, mut width, mut significant) = ([0.0; 16], 0.0, 0.0);
            for _ in 0..DRAWS {
                let group = |place: usize| {
                    let posts = [&same, second][place];
                    let drawn = || posts.cells[random.usize(..posts.cells.len())];
                    let sample: Vec<_> = std::iter::repeat_with(drawn).take(answers).collect();
                    let estimates = estimates(&sample, &assigned[place]).into_iter();
                    GroupShares {
                        group: Some(place.to_string()),
                        posts: posts.cells.len() as u64,
                        answers,
                        shares: estimates
                            .map(|one| GroupShare {
                                assigned: 0.0,
                                estimated: Some(one),
                            })
                            .collect(),
                    }
                };
                let found = group_differences(&[0, 1].map(group));
                for one in &found {
                    let true_one = truth[1][one.label] - truth[0][one.label];
                    let is_covered =
                        one.difference.low <= true_one && true_one <= one.difference.high;
                    covered[one.label] += f64::from(u8::from(is_covered)) / float(DRAWS);
                    width += (one.difference.high - one.difference.low) / float(16 * DRAWS);
                }
                let any = found.iter().any(|one| one.p_holm < 0.05);
                significant += f64::from(u8::from(any)) / float(DRAWS);
            }
            let least = covered.iter().copied().fold(1.0, f64::min);
            let mean = covered.iter().sum::<f64>() / 16.0;
            writeln!(
                out,
                "| {name} | {answers} | {mean:.3} | {least:.3} | {width:.3} | {significant:.3} |"
            )?;
        }
    }
    Ok(())
}

/// Returns how often a sample from twelve subreddits of different sizes is rejected as hardly random.
fn mixes_of_samples(out: &mut impl Write) -> Outcome<()> {
    writeln!(out, "\n| posts | sample | rejected |\n|---|---|---|")?;
    let sizes: Vec<u64> = (1..=12).map(|size| size * 100).collect();
    let cell = |subreddit: usize, posts: u64| FrameCell {
        wave: 0,
        subreddit: subreddit.to_string(),
        topic: None,
        group: None,
        label: Some((subreddit % 4).to_string()),
        posts,
    };
    let frame: Vec<FrameCell> = (0..12)
        .map(|subreddit| cell(subreddit, sizes[subreddit]))
        .collect();
    let all: u64 = sizes.iter().sum();
    for posts in [30, 60, 120] {
        for (name, share) in [
            ("random", 0.0),
            ("a fifth more of one subreddit", 0.2),
            ("half from one subreddit", 0.5),
            ("one subreddit", 1.0),
        ] {
            let mut random = fastrand::Rng::with_seed(SEED);
            let mut one = || {
                if random.f64() < share {
                    return 5;
                }
                let mut post = random.u64(..all);
                let place = sizes.iter().position(|size| {
                    let is_here = post < *size;
                    post = post.saturating_sub(*size);
                    is_here
                });
                place.expect("less than the sum")
            };
            let rejected = (0..DRAWS).filter(|_| {
                let mut counts = [0; 12];
                (0..posts).for_each(|_| counts[one()] += 1);
                let sample: Vec<FrameCell> = counts
                    .iter()
                    .enumerate()
                    .map(|(subreddit, posts)| cell(subreddit, *posts))
                    .collect();
                mixes(&frame, &sample)
                    .iter()
                    .any(topicmill_review::evaluate::Mix::is_unlikely)
            });
            writeln!(
                out,
                "| {posts} | {name} | {:.3} |",
                float(rejected.count()) / float(DRAWS)
            )?;
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
    let estimates = estimates(sample, assigned);
    estimates.iter().map(|one| (one.low, one.high)).collect()
}

fn estimates(sample: &[(usize, usize)], assigned: &[f64]) -> Vec<Estimate> {
    let rows = sample.iter().map(|(gold, given)| EvaluatedPost {
        right: vec![*gold],
        ties: Vec::new(),
        best: *given,
        score: 0.5,
        abstained: false,
        weight: 1.0,
    });
    // The last share is that of posts without a label.
    let shares: Vec<f64> = assigned.iter().copied().chain([0.0]).collect();
    let rows: Vec<EvaluatedPost> = rows.collect();
    let mut estimates = estimate_shares(&[SampledPart {
        share: 1.0,
        assigned: shares,
        rows: rows.iter().collect(),
    }]);
    estimates.truncate(assigned.len());
    estimates
}

fn float(n: usize) -> f64 {
    n as f64
}
