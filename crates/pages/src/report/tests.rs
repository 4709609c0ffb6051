//! Tests the text and the charts in reports built from aggregates.

use topicmill_core::{Label, LabelSet, Mode, table};

use super::build::{Context, build};
use super::*;
use topicmill_review::coverage::Covered;
use topicmill_review::evaluate::{Estimate, LabelShare, NO_LABEL, Proportion};
use topicmill_review::quality::{LeftOutAnswers, MeasuredQuality, QualitySample};
use topicmill_store::{
    Gap, LabelSetId, ModelId, PeriodCell, PostOutcome, ReportCell, ReportSums, ScoreBin, TimeStep,
    TwoPeriods,
};

fn time(day: i64) -> Timestamp {
    Timestamp::from_epoch_secs(1_790_000_000 + day * 86_400).unwrap()
}

fn day(day: i64) -> String {
    time(day).as_datetime().format("%Y-%m-%d").to_string()
}

/// Builds a report from (label, posts in the earlier half, posts in the later half) over twenty days.
fn report_with(labels: &[(&str, u64, u64)], none: (u64, u64)) -> Report {
    report_of(labels, none, 1)
}

/// Returns the same counts from one of several subreddits, which was read without gaps.
fn comparison(cells: &[ReportCell], all_subreddits: usize) -> (Covered, Vec<PeriodCell>) {
    let period_cells = cells.iter().map(|cell| PeriodCell {
        is_later: cell.time == day(15),
        subreddit: "Trial".into(),
        label: cell.label.clone(),
        outcome: cell.outcome,
        posts: cell.posts,
    });
    let covered = Covered {
        periods: TwoPeriods {
            from: time(0),
            split: time(10),
            until: time(20),
        },
        subreddits: ["trial".to_owned()].into(),
        all_subreddits,
    };
    (covered, period_cells.collect())
}

/// Builds such a report for one of several subreddits.
fn report_of(labels: &[(&str, u64, u64)], none: (u64, u64), all_subreddits: usize) -> Report {
    let set = LabelSet {
        name: "trial".into(),
        template: "About {}.".into(),
        mode: Mode::Single,
        threshold: 0.4,
        temperature: 1.0,
        labels: labels
            .iter()
            .map(|(slug, ..)| Label {
                slug: (*slug).into(),
                label: format!("all about {slug}"),
                descriptions: vec![],
            })
            .collect(),
        background: None,
        fitted: None,
    };
    let cell = |label: Option<&str>, outcome, is_later: bool, posts: u64| ReportCell {
        time: day(if is_later { 15 } else { 5 }),
        topic: labels.first().map(|(slug, ..)| (*slug).to_owned()),
        label: label.map(str::to_owned),
        outcome,
        posts,
        score_sum: 0.5 * topicmill_review::as_f64(posts),
    };
    let mut cells: Vec<ReportCell> = labels
        .iter()
        .flat_map(|(slug, before, after)| {
            let of = |is_later, posts| cell(Some(slug), PostOutcome::Labelled, is_later, posts);
            [of(false, *before), of(true, *after)]
        })
        .collect();
    cells.push(cell(None, PostOutcome::Other, false, none.0));
    cells.push(cell(None, PostOutcome::Unsure, true, none.1));
    cells.retain(|cell| cell.posts > 0);
    let bins = cells.iter().map(|cell| ScoreBin {
        label: cell.label.clone(),
        outcome: cell.outcome,
        bin: 25,
        posts: cell.posts,
    });
    let compared = Some(comparison(&cells, all_subreddits));
    let sums = ReportSums {
        first: Some(time(0)),
        last: Some(time(20)),
        step: TimeStep::Day,
        bins: bins.collect(),
        cells,
        ..ReportSums::default()
    };
    let options = ReportOptions {
        kind: ThingKind::Post,
        subject: Some((
            Target {
                model: ModelId(1),
                label_set: LabelSetId(1),
            },
            set,
        )),
        since: None,
        until: None,
        database: "trial.db".into(),
        now: time(21),
        by: None,
    };
    let context = Context {
        compared,
        gaps: vec![Gap {
            source: topicmill_core::SourceKind::Reddit,
            topic: labels.first().map_or("x", |(slug, ..)| slug).to_owned(),
            subreddit: "trial".into(),
            from_at: time(3),
            until_at: time(4),
        }],
        ..Context::default()
    };
    build(&options, sums, context)
}

#[test]
fn the_headline_states_only_significant_results() {
    for (labels, none, expected) in [
        (
            vec![("a", 500, 500), ("b", 100, 100)],
            (0, 0),
            "All about a is assigned to 83 % of posts, more than any other label",
        ),
        (
            vec![("a", 100, 500), ("b", 100, 100)],
            (0, 0),
            "All about a is assigned to 75 % of posts, more than any other label; the assigned share of all about a grew \
             from 50 % to 83 %",
        ),
        (
            vec![("a", 51, 50), ("b", 50, 50), ("c", 50, 51)],
            (0, 0),
            "Posts are spread over 3 labels, and none is clearly the most common",
        ),
        (
            vec![("a", 200, 100), ("b", 100, 200)],
            (0, 0),
            "The assigned share of all about a fell from 67 % to 33 %",
        ),
        (
            vec![("a", 50, 50), ("b", 50, 50)],
            (400, 400),
            "80 % of posts got no label",
        ),
        // Too few posts for a comparison.
        (
            vec![("a", 29, 0), ("b", 0, 400)],
            (0, 0),
            "All about b is assigned to 93 % of posts, more than any other label",
        ),
        (
            vec![("a", 50, 50)],
            (0, 0),
            "All about a is assigned to 100 % of posts",
        ),
    ] {
        assert_eq!(headline(&report_with(&labels, none)), expected);
    }
    let some = report_of(&[("a", 200, 100), ("b", 100, 200)], (0, 0), 3);
    assert!(headline(&some).ends_with(" in r/trial"), "{some:?}");
}

#[test]
fn the_intervals_decide_what_the_headline_says_of_estimates() {
    let labels = [("a", 500, 500), ("b", 100, 100)];
    for ([a, b, none], expected) in table! {
        [(0.6, 0.5, 0.7), (0.3, 0.2, 0.45), (0.1, 0.05, 0.2)],
            "All about a fits an estimated 60 % of posts (50 to 70 %), more than any other label";
        [(0.5, 0.4, 0.6), (0.4, 0.3, 0.5), (0.1, 0.05, 0.2)],
            "Posts are spread over 2 labels, and none is clearly the most common";
        [(0.2, 0.1, 0.3), (0.15, 0.1, 0.2), (0.65, 0.55, 0.7)],
            "An estimated 65 % of posts (55 to 70 %) fit none of the labels";
    } {
        let shares = [("a", a), ("b", b), (NO_LABEL, none)];
        let shares = shares.map(|(label, (value, low, high))| LabelShare {
            label: label.to_owned(),
            assigned: 0.5,
            estimated: Estimate {
                value: Some(value),
                low,
                high,
            },
        });
        let all = Proportion::new(80, 100);
        let report = Report {
            quality: Some(MeasuredQuality {
                sentence: String::new(),
                sample: Some(QualitySample::Random),
                outcome: all,
                precision: all,
                cross_fitted: 0,
                left_out: LeftOutAnswers::default(),
                frame: None,
                shares: shares.into(),
            }),
            ..report_with(&labels, (0, 0))
        };
        assert_eq!(headline(&report), expected);
    }
}

#[test]
fn shares_changes_and_agreement_are_consistent() {
    let report = report_with(
        &[("a", 100, 500), ("b", 100, 100), ("empty", 0, 0)],
        (30, 20),
    );
    assert_eq!(
        (report.posts, report.scored(), report.waiting),
        (850, 850, 0)
    );
    let shares: f64 = report.outcomes.iter().map(|line| line.share).sum();
    assert!((shares - 1.0).abs() < 1e-12);
    let slugs: Vec<_> = report.outcomes.iter().map(|stats| &*stats.slug).collect();
    assert_eq!(slugs, ["a", "b", "empty", "other", "unsure"]);
    let a = &report.outcomes[0];
    assert_eq!((a.series[5], a.series[15], a.series.len()), (100, 500, 21));
    assert_eq!(a.mean_score, Some(0.5));
    let change = a.change.unwrap();
    assert!(change.is_significant() && change.share.to > change.share.from);
    assert_eq!(report.outcomes[2].mean_score, None);
    let Agreement { agreed, comparable } = report.agreement;
    assert_eq!((agreed, comparable), (600, 850), "all are for topic a");
    assert_eq!(report.totals[15], [600, 20, 0]);
}

#[test]
fn charts_are_valid_for_extreme_numbers() {
    let slugs: Vec<String> = (0..90)
        .map(|n| format!("label-{n}-{}", "x".repeat(n)))
        .collect();
    let many: Vec<(&str, u64, u64)> = slugs.iter().map(|slug| (slug.as_str(), 7, 9)).collect();
    for labels in [
        &many[..],
        &many[..1],
        &many[..2],
        &[("a", u64::MAX / 64, 1)],
        &[("a", 0, 0)],
    ] {
        let report = report_with(labels, (1, 0));
        for chart in charts(&report) {
            for drawn in [chart.html(), chart.file()] {
                assert!(
                    !drawn.contains("NaN") && !drawn.contains("inf") && !drawn.contains("=\"-"),
                    "{}: {drawn}",
                    chart.id
                );
            }
            let columns = chart.table.head.len();
            assert!(
                chart.table.rows.iter().all(|row| row.len() == columns),
                "{}",
                chart.id
            );
        }
        let page = render_page(&report);
        assert!(page.len() < 1_000_000, "{}", page.len());
    }
    let page = render_page(&report_with(&many, (1, 0)));
    assert!(page.contains(" Left out: 67 smaller labels."), "{page}");
    assert!(page.contains(" Only in the table: 66 labels."), "{page}");
}
