//! What runs did, and how fast.

use serde_json::Value;

use super::super::drift::real;
use super::super::svg::{Anchor, Svg, width as measure};
use super::super::table::Table;
use super::super::{Report, time};
use super::{Chart, NARROW, WIDE};
use crate::look::whole;
use crate::store::RunRow;

/// Runs that are drawn.
const RUNS: usize = 12;

/// Posts of a run, and how many a second.
fn pace(run: &RunRow) -> Option<(u64, f64)> {
    let posts = run.counts["posts"].as_u64()?;
    let told = run.counts["posts_per_sec"].as_f64();
    let took = run
        .finished_at
        .map(|end| (end.as_datetime() - run.started_at.as_datetime()).num_seconds());
    // Times of runs are whole seconds: one that took less has no pace.
    let seconds = took
        .filter(|seconds| *seconds > 0)
        .map(|seconds| real(seconds.cast_unsigned()));
    let pace = told.or_else(|| seconds.map(|seconds| real(posts) / seconds))?;
    (posts > 0 && pace.is_finite()).then_some((posts, pace))
}

/// A number a second, with the digits that mean something.
fn per_second(pace: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked"
    )]
    match pace {
        pace if pace >= 100.0 => whole(pace.round() as u64),
        pace if pace >= 10.0 => format!("{pace:.0}"),
        pace => format!("{pace:.1}"),
    }
}

/// The latest runs.
pub fn chart(report: &Report) -> Option<Chart> {
    if report.runs.is_empty() {
        return None;
    }
    let rows = report.runs.iter().map(|run| {
        let took = run
            .finished_at
            .map(|end| end.as_datetime() - run.started_at.as_datetime());
        let took = took.map(|took| time::took(real(took.num_seconds().max(0).cast_unsigned())));
        let posts = run.counts["posts"].as_u64();
        vec![
            run.stage.clone(),
            run.status.clone(),
            time::moment(run.started_at),
            took.unwrap_or_else(|| "–".to_owned()),
            posts.map_or_else(|| "–".to_owned(), whole),
            pace(run).map_or_else(|| "–".to_owned(), |(_, pace)| per_second(pace)),
            device(run),
        ]
    });
    let head = [
        "stage",
        "status",
        "began",
        "took",
        "posts",
        "posts a second",
        "on",
    ];
    let paced: Vec<(&RunRow, u64, f64)> = report
        .runs
        .iter()
        .filter_map(|run| pace(run).map(|(posts, pace)| (run, posts, pace)))
        .take(RUNS)
        .collect();
    let failed = report
        .runs
        .iter()
        .filter(|run| ["failed", "died", "partial"].contains(&run.status.as_str()));
    let failed = match failed.count() {
        0 => String::new(),
        1 => " One of the latest runs did not do all that it had to; the table says which."
            .to_owned(),
        n => format!(
            " {n} of the latest runs did not do all that they had to; the table says which."
        ),
    };
    Some(Chart {
        id: "throughput",
        title: "Runs".to_owned(),
        read: format!(
            "Posts a second of the latest runs, the latest first; the accent marks labelling.{failed}"
        ),
        table: Table::new(4, &head, rows),
        wide: draw(&paced, WIDE, 300.0),
        narrow: draw(&paced, NARROW, 148.0),
    })
}

fn device(run: &RunRow) -> String {
    let devices = run.counts["settings"]["devices"].as_array();
    let devices = devices.map(|all| {
        all.iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    });
    devices
        .filter(|told| !told.is_empty())
        .unwrap_or_else(|| "–".to_owned())
}

fn draw(runs: &[(&RunRow, u64, f64)], width: f64, most: f64) -> Svg {
    const ROW: f64 = 24.0;
    let name = |run: &RunRow, posts: u64| {
        let began = run.started_at.as_datetime().format("%-d %b");
        if width > NARROW {
            format!("{} · {began} · {} posts", run.stage, whole(posts))
        } else {
            format!("{} · {began}", run.stage)
        }
    };
    let names = runs
        .iter()
        .map(|(run, posts, _)| measure(&name(run, *posts)))
        .fold(0.0, f64::max);
    let left = (names + 12.0).min(most);
    let largest = runs
        .iter()
        .map(|(.., pace)| *pace)
        .fold(0.0, f64::max)
        .max(1e-9);
    let numbers = runs
        .iter()
        .map(|(.., pace)| measure(&per_second(*pace)))
        .fold(0.0, f64::max);
    let right = width - numbers - 10.0;
    let mut svg = Svg::new(width, (ROW * real(runs.len() as u64)).max(4.0));
    for (place, (run, posts, pace)) in runs.iter().enumerate() {
        let y = ROW * (real(place as u64) + 0.5);
        let name = name(run, *posts);
        svg.text(
            (left - 10.0, y + 4.0),
            Anchor::End,
            "name",
            &name,
            left - 10.0,
        );
        let long = ((right - left) * pace / largest).max(1.0);
        let class = if run.stage == "classify" {
            "mark"
        } else {
            "mark-grey"
        };
        svg.rect(
            (left, y - 6.0),
            (long, 12.0),
            class,
            &format!("{name}: {} posts a second", per_second(*pace)),
        );
        svg.text(
            (left + long + 6.0, y + 4.0),
            Anchor::Start,
            "",
            &per_second(*pace),
            numbers + 4.0,
        );
    }
    svg
}
