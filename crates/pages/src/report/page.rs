//! The report as HTML. Templates are checked when the program is built, and escape every text; what they take as it is
//! are the drawings, which escape theirs.

use askama::Template;

use super::GENERATOR;
use super::charts::{self, Chart};
use super::data::{OutcomeStats, QuotedPost, Report};
use super::finding;
use super::svg::Svg;
use super::time;
use crate::display::{self, percent, points, thousands};
use topicmill_review::drift::{DriftVerdict, as_f64};
use topicmill_store::Fate;

/// Lines of the table of labels, at most.
const LINES: usize = 200;
/// Columns of the line in a row.
const SPARK: usize = 60;
/// Passed-over subreddits that are told.
const SKIPPED: usize = 12;

/// A figure of the head, with its name.
struct Figure {
    value: String,
    name: &'static str,
    is_warm: bool,
}

/// A row of the table of labels.
struct Row {
    name: String,
    class: &'static str,
    posts: String,
    share: String,
    bar: String,
    spark: String,
    change: String,
    change_class: &'static str,
    mean: String,
}

/// A quoted post.
struct Quote {
    title: String,
    link: Option<String>,
    said: String,
}

/// Subreddits that were passed over.
struct Passed {
    when: String,
    said: String,
}

#[derive(Template)]
#[template(path = "report/body.html")]
struct Body {
    headline: String,
    lead: String,
    figures: Vec<Figure>,
    rows: Vec<Row>,
    rows_left_out: usize,
    has_change: bool,
    about_labels: String,
    charts: Vec<Chart>,
    closest: Vec<Quote>,
    surest: Vec<Quote>,
    skipped: Vec<Passed>,
    footer: String,
}

#[derive(Template)]
#[template(path = "report/page.html")]
struct Page {
    sign: &'static str,
    title: String,
    style: &'static str,
    body: String,
}

/// A whole page, which loads nothing from anywhere.
pub fn render_page(report: &Report) -> String {
    let page = Page {
        sign: GENERATOR,
        title: finding::headline(report),
        style: display::STYLE,
        body: render_body(report),
    };
    page.render().expect("a string takes what is written")
}

/// What stands between `<main>` and `</main>`; it needs [`display::STYLE`], no script, and no style of its own.
pub fn render_body(report: &Report) -> String {
    let body = Body {
        headline: finding::headline(report),
        lead: finding::lead(report),
        figures: figures(report),
        rows: rows(report),
        rows_left_out: report.outcomes.len().saturating_sub(LINES),
        has_change: report.period.is_some(),
        about_labels: about_labels(report),
        charts: charts::charts(report),
        closest: quotes(&report.closest, true),
        surest: quotes(&report.surest, false),
        skipped: skipped(report),
        footer: footer(report),
    };
    body.render().expect("a string takes what is written")
}

fn figures(report: &Report) -> Vec<Figure> {
    if report.posts == 0 {
        return Vec::new();
    }
    let scored = report.scored();
    let figure = |value: String, name| Figure {
        value,
        name,
        is_warm: false,
    };
    let mut figures = vec![figure(thousands(report.posts), "posts")];
    figures.push(Figure {
        value: percent(as_f64(scored) / as_f64(report.posts)),
        name: "labelled",
        is_warm: scored < report.posts,
    });
    if scored > 0 {
        let none = report.of(Fate::Other) + report.of(Fate::Unsure);
        figures.push(figure(
            percent(as_f64(none) / as_f64(scored)),
            "none of the labels",
        ));
    }
    if report.agreement.1 > 0 {
        let share = as_f64(report.agreement.0) / as_f64(report.agreement.1);
        figures.push(figure(percent(share), "labelled as their topic"));
    }
    if let Some(drift) = report.drift {
        figures.push(Figure {
            value: format!("{:.2}", drift.index),
            name: "drift of the mix",
            is_warm: matches!(
                drift.verdict(),
                DriftVerdict::Moderate | DriftVerdict::Large
            ),
        });
    }
    figures.push(Figure {
        value: thousands(report.gaps.len() as u64),
        name: match report.gaps.len() {
            1 => "gap in collecting",
            _ => "gaps in collecting",
        },
        is_warm: !report.gaps.is_empty(),
    });
    figures
}

/// A bar as long as a share of the longest.
fn bar(line: &OutcomeStats, largest: u64) -> String {
    let long = 100.0 * as_f64(line.posts) / as_f64(largest.max(1));
    let mut svg = Svg::new(100.0, 10.0);
    let class = if line.fate == Fate::Labelled {
        "mark"
    } else {
        "mark-grey"
    };
    svg.rect((0.0, 0.0), (long, 10.0), class, "");
    svg.stretched("level")
}

/// A line as small as a word.
fn spark(line: &OutcomeStats) -> String {
    let together = line.series.len().div_ceil(SPARK).max(1);
    let series: Vec<u64> = line
        .series
        .chunks(together)
        .map(|part| part.iter().sum())
        .collect();
    if series.len() < 2 {
        return String::new();
    }
    let (width, height) = (116.0, 26.0);
    let mut svg = Svg::new(width, height);
    let largest = as_f64(series.iter().max().copied().unwrap_or(0).max(1));
    let last = as_f64(series.len() as u64 - 1);
    let places: Vec<_> = series
        .iter()
        .enumerate()
        .map(|(place, posts)| {
            let x = 3.0 + (width - 6.0) * as_f64(place as u64) / last;
            (x, height - 3.0 - (height - 7.0) * as_f64(*posts) / largest)
        })
        .collect();
    svg.area(&places, height - 1.0, "mark-soft");
    svg.path(&places, "stroke");
    let end = places.last().copied().expect("there are two");
    svg.dot(end, 2.4, "mark", "");
    let told = format!(
        "{} columns, the last with {} posts",
        series.len(),
        series.last().copied().unwrap_or(0)
    );
    svg.inline("spark", &told)
}

fn rows(report: &Report) -> Vec<Row> {
    let largest = report
        .outcomes
        .iter()
        .map(|line| line.posts)
        .max()
        .unwrap_or(0);
    let row = |line: &OutcomeStats| {
        let (change, change_class) = match line.change {
            None => ("–".to_owned(), "flat"),
            Some(change) => {
                let class = match (change.is_significant, change.difference() > 0.0) {
                    (false, _) => "flat",
                    (true, true) => "up",
                    (true, false) => "down",
                };
                (points(change.difference()), class)
            }
        };
        Row {
            name: display::single_line(&line.name, 120),
            class: if line.fate == Fate::Labelled {
                ""
            } else {
                "soft"
            },
            posts: thousands(line.posts),
            share: percent(line.share),
            bar: bar(line, largest),
            spark: spark(line),
            change,
            change_class,
            mean: line
                .mean_score
                .map_or_else(|| "–".to_owned(), display::score),
        }
    };
    if report.scored() == 0 {
        return Vec::new();
    }
    report.outcomes.iter().take(LINES).map(row).collect()
}

fn about_labels(report: &Report) -> String {
    let mut said =
        "Posts of each label, as a bar and over time; each line has a scale of its own.".to_owned();
    if let Some(period) = report.period {
        let (before, after) = period.words();
        let change = format!(
            " The change is the share in {after} less the share in {before}, in percentage points; it is coloured only where \
             it is larger than chance would make it."
        );
        said.push_str(&change);
    }
    if report
        .outcomes
        .iter()
        .any(|line| line.fate != Fate::Labelled)
    {
        said += " Posts without a label are other, where a topic beside the labels fits better, or unsure, where no label is \
                 sure enough.";
    }
    said
}

fn quotes(calls: &[QuotedPost], is_close: bool) -> Vec<Quote> {
    let quote = |call: &QuotedPost| {
        let best = call.best.iter().map(|(label, score)| {
            format!(
                "{} {}",
                display::single_line(label, 48),
                display::score(*score)
            )
        });
        let best: Vec<String> = best.collect();
        let best = match (is_close, best.as_slice()) {
            (true, [first, second, ..]) => Some(format!("{first} or {second}")),
            (_, [first, ..]) => Some(first.clone()),
            (_, []) => None,
        };
        let topic = call.topic.as_ref();
        let said = [
            Some(format!("r/{}", call.subreddit)),
            topic.map(|topic| format!("collected for {}", display::single_line(topic, 48))),
            best,
            (!call.is_labelled).then(|| "unsure, so without a label".to_owned()),
        ];
        let said = said.into_iter().flatten().collect::<Vec<_>>().join(" · ");
        Quote {
            title: call.title.clone(),
            link: call.link.clone(),
            said,
        }
    };
    calls.iter().map(quote).collect()
}

fn skipped(report: &Report) -> Vec<Passed> {
    let mut told = Vec::new();
    for skipped in &report.skipped {
        let passed: Vec<String> = skipped
            .passed
            .iter()
            .map(|(subreddit, why)| {
                format!(
                    "r/{} ({})",
                    display::single_line(subreddit, 40),
                    display::single_line(why, 40)
                )
            })
            .collect();
        let read = match &skipped.read {
            Some(read) => format!("r/{} was read instead of", display::single_line(read, 40)),
            None => "nothing was read instead of".to_owned(),
        };
        let said = format!(
            "{}: {read} {}",
            display::single_line(&skipped.topic, 60),
            passed.join(", ")
        );
        // The same topic passes over the same subreddit run after run.
        if !told.iter().any(|one: &Passed| one.said == said) {
            told.push(Passed {
                when: time::moment(skipped.at),
                said,
            });
        }
    }
    told.truncate(SKIPPED);
    told
}

fn footer(report: &Report) -> String {
    let made = format!(
        "Made by topicmill from {} on {}.",
        report.database,
        time::moment(report.now)
    );
    let label_set = report.label_set.as_ref();
    let label_set = label_set.map(|(name, version)| {
        format!(
            "Label set {}, version {version}.",
            display::single_line(name, 80)
        )
    });
    let reconciled = match report.reconciled_at {
        Some(at) => format!(
            "Agrees with deletions on Reddit as of {}.",
            time::moment(at)
        ),
        None => "Never compared with deletions on Reddit.".to_owned(),
    };
    let nothing = "Nothing on this page loads anything from elsewhere.".to_owned();
    let said = [Some(made), label_set, Some(reconciled), Some(nothing)];
    said.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
