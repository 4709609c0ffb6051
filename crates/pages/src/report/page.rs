//! Renders the report as HTML. Templates are checked at compile time and escape all text, except the SVG charts, which
//! escape their own text.

use askama::Template;

use super::GENERATOR;
use super::charts::{self, Chart};
use super::data::{Agreement, Change, LabelScore, OutcomeStats, QuotedPost, Report};
use super::headline;
use super::svg::Svg;
use super::time;
use crate::display::{self, counted, interval, percent, points, thousands};
use topicmill_core::ThingKind;
use topicmill_review::REVIEW_COMMAND;
use topicmill_review::as_f64;
use topicmill_review::evaluate::{ENOUGH_ANSWERS, LabelShare, NO_LABEL};
use topicmill_store::PostOutcome;

/// Maximum number of rows in the label table.
const LABEL_ROWS: usize = 200;
/// Maximum number of points in a sparkline.
const SPARK: usize = 60;
/// Maximum number of unreadable subreddits listed.
const SKIPPED: usize = 12;

/// A key figure at the top of a report.
struct Figure {
    value: String,
    name: String,
    is_warm: bool,
}

/// The labels' quality.
struct Quality {
    sentence: String,
    /// True if there is no overall estimate.
    is_warm: bool,
    /// True if the report covers only some of the posts that the estimate refers to.
    scope: bool,
    /// The URL for the review page.
    review: Option<&'static str>,
    /// The command that starts the review page.
    command: &'static str,
}

/// A row in the label table.
struct Row {
    name: String,
    class: &'static str,
    posts: String,
    share: String,
    /// The estimated share and its interval.
    estimated: Option<[String; 2]>,
    /// The assigned share of the posts that the estimates speak of, if these are not all.
    covered: Option<String>,
    bar: String,
    spark: String,
    change: String,
    change_class: &'static str,
    /// The change without a constant mix of subreddits, if it differs.
    raw_change: Option<String>,
    mean: String,
}

/// A quoted post.
struct Quote {
    title: String,
    link: Option<String>,
    text: String,
}

/// Subreddits that could not be read.
struct SkippedSubreddits {
    when: String,
    text: String,
}

#[derive(Template)]
#[template(path = "report/body.html")]
struct Body {
    /// `posts` or `comments`.
    things: &'static str,
    headline: String,
    lead: String,
    quality: Option<Quality>,
    figures: Vec<Figure>,
    rows: Vec<Row>,
    rows_left_out: usize,
    has_estimates: bool,
    has_change: bool,
    about_labels: String,
    charts: Vec<Chart>,
    closest: Vec<Quote>,
    most_confident: Vec<Quote>,
    skipped: Vec<SkippedSubreddits>,
    footer: String,
}

#[derive(Template)]
#[template(path = "report/page.html")]
struct ReportPage {
    generator: &'static str,
    title: String,
    style: &'static str,
    body: String,
}

/// Renders the report as a self-contained HTML page.
pub fn render_page(report: &Report) -> String {
    let page = ReportPage {
        generator: GENERATOR,
        title: headline::headline(report),
        style: display::STYLE,
        body: render_body(report, None),
    };
    page.render().expect("writing to a string cannot fail")
}

/// Renders the content of `<main>`. It requires the style sheet [`display::STYLE`] but no script. `review` is the URL
/// for the review page, if there is one.
pub fn render_body(report: &Report, review: Option<&'static str>) -> String {
    let body = Body {
        things: report.kind.plural(),
        headline: headline::headline(report),
        lead: headline::lead(report),
        quality: match &report.quality {
            Some(quality) if report.scored() > 0 => Some(Quality {
                sentence: quality.sentence.clone(),
                is_warm: !quality.is_estimate(),
                scope: quality.is_estimate() && quality.frame.is_none() && report.is_bounded,
                review,
                command: REVIEW_COMMAND,
            }),
            _ => None,
        },
        figures: figures(report),
        rows: rows(report),
        rows_left_out: report.outcomes.len().saturating_sub(LABEL_ROWS),
        has_estimates: report.estimates().is_some(),
        has_change: report.compared.is_ok(),
        about_labels: about_labels(report),
        charts: charts::charts(report),
        closest: quotes(&report.closest, true),
        most_confident: quotes(&report.most_confident, false),
        skipped: skipped(report),
        footer: footer(report),
    };
    body.render().expect("writing to a string cannot fail")
}

fn figures(report: &Report) -> Vec<Figure> {
    if report.posts == 0 {
        return Vec::new();
    }
    let scored = report.scored();
    let figure = |value: String, name: String| Figure {
        value,
        name,
        is_warm: false,
    };
    let things = report.kind.plural();
    let mut figures = vec![figure(thousands(report.posts), things.to_owned())];
    figures.push(Figure {
        value: thousands(scored),
        name: "labelled, other or unsure".to_owned(),
        is_warm: scored < report.posts,
    });
    let share = |of: u64, all: u64| percent(as_f64(of) / as_f64(all));
    if scored > 0 {
        let none = report.posts_with(PostOutcome::Other) + report.posts_with(PostOutcome::Unsure);
        let name = format!("of {} {things} got no label", thousands(scored));
        figures.push(figure(share(none, scored), name));
    }
    let Agreement { agreed, comparable } = report.agreement;
    if comparable > 0 {
        let left_out = match scored - comparable {
            0 => String::new(),
            others => format!(
                "; {} others have no topic among the labels",
                thousands(others)
            ),
        };
        let name = format!(
            "of {} {things} have their topic as label (not accuracy){left_out}",
            thousands(comparable)
        );
        figures.push(figure(share(agreed, comparable), name));
    }
    figures.push(Figure {
        value: thousands(report.gaps.len() as u64),
        name: match report.gaps.len() {
            1 => "collection gap".to_owned(),
            _ => "collection gaps".to_owned(),
        },
        is_warm: !report.gaps.is_empty(),
    });
    figures
}

/// Draws a bar, relative to the largest label.
fn bar(line: &OutcomeStats, largest: u64) -> String {
    let long = 100.0 * as_f64(line.posts) / as_f64(largest.max(1));
    let mut svg = Svg::new(100.0, 10.0);
    let class = if line.outcome == PostOutcome::Labelled {
        "mark"
    } else {
        "mark-grey"
    };
    svg.rect((0.0, 0.0), (long, 10.0), class, "");
    svg.stretched("level")
}

/// Draws a sparkline of posts over time.
fn spark(series: &[u64], things: &str) -> String {
    let together = series.len().div_ceil(SPARK).max(1);
    // Columns are grouped from the end so that the last point covers as many columns as the others.
    let mut series: Vec<u64> = series
        .rchunks_exact(together)
        .map(|part| part.iter().sum())
        .collect();
    series.reverse();
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
    let end = places
        .last()
        .copied()
        .expect("there are at least two points");
    svg.dot(end, 2.4, "mark", "");
    let alt = format!(
        "{} data points, the last with {} {things}",
        series.len(),
        series.last().copied().unwrap_or(0)
    );
    svg.inline("spark", &alt)
}

fn rows(report: &Report) -> Vec<Row> {
    let largest = report
        .outcomes
        .iter()
        .map(|line| line.posts)
        .max()
        .unwrap_or(0);
    let row = |line: &OutcomeStats| {
        let shares = report.estimate_of(&line.slug);
        let (change, change_class) = match line.change {
            None => ("–".to_owned(), "flat"),
            Some(change) => {
                let difference = change.share.difference();
                let class = match (change.is_significant(), difference > 0.0) {
                    (false, _) => "flat",
                    (true, true) => "up",
                    (true, false) => "down",
                };
                (points(difference), class)
            }
        };
        Row {
            name: display::single_line(&line.name, 120),
            class: if line.outcome == PostOutcome::Labelled {
                ""
            } else {
                "soft"
            },
            posts: thousands(line.posts),
            share: percent(line.share),
            covered: shares
                .filter(|_| report.not_covered() > 0)
                .map(|one| percent(one.assigned)),
            estimated: shares.map(|LabelShare { estimated: one, .. }| {
                let value = one.value.map_or_else(|| "–".to_owned(), percent);
                [value, interval(one.low, one.high)]
            }),
            bar: bar(line, largest),
            spark: spark(&line.series[report.axis.complete()], report.kind.plural()),
            change,
            change_class,
            raw_change: line
                .change
                .filter(Change::depends_on_mix)
                .map(|change| points(change.share.raw_difference())),
            mean: line
                .mean_score
                .map_or_else(|| "–".to_owned(), display::score),
        }
    };
    if report.scored() == 0 {
        return Vec::new();
    }
    report.outcomes.iter().take(LABEL_ROWS).map(row).collect()
}

/// Says which shares the label table has, and why none are estimated.
fn about_shares(report: &Report) -> String {
    let (scored, things) = (thousands(report.scored()), report.kind.plural());
    let assigned = format!(
        "Shares are of the stored {things}, so they also depend on how many were collected for each topic. Assigned: \
         the share of {scored} labelled {things} that the model gave the label."
    );
    let Some(shares) = report.estimates() else {
        let so_far = match report.sampled {
            _ if report.kind == ThingKind::Comment => {
                "there are no random samples of comments".to_owned()
            }
            answers if answers >= ENOUGH_ANSWERS => "the sample is hardly random".to_owned(),
            answers => {
                format!("that takes {ENOUGH_ANSWERS} random answers, and there are {answers}")
            }
        };
        return format!(
            "{assigned} The share whose right label it is was not estimated: {so_far}."
        );
    };
    let mut text = format!(
        "{assigned} Estimated: the share whose right label it is, with its 95 % interval, from {} random answers.",
        thousands(report.sampled as u64)
    );
    if report.not_covered() > 0 {
        let posts = counted(report.not_covered(), "post");
        text.extend([
            " The estimates leave out ",
            &posts,
            " that could not be drawn, stored later or without text; the assigned share of the others is below them.",
        ]);
    }
    if let Some(none) = shares.iter().find(|share| share.label == NO_LABEL) {
        let value = none.estimated.value.map_or_else(|| "–".to_owned(), percent);
        let interval = interval(none.estimated.low, none.estimated.high);
        let sentence = format!(" No label is right for an estimated {value} ({interval}).");
        text.push_str(&sentence);
    }
    text
}

fn about_labels(report: &Report) -> String {
    let mut text = format!(
        "{} Each sparkline has its own scale.{}",
        about_shares(report),
        report.axis.about_lines()
    );
    if let Ok(compared) = &report.compared {
        let [before, after] = compared.dates();
        let change = format!(
            " The change is that of the assigned share from {before} to {after}, in percentage points, in a constant \
             mix of subreddits. Significant changes are coloured."
        );
        text.push_str(&change);
        if report
            .outcomes
            .iter()
            .any(|line| line.change.is_some_and(|change| change.depends_on_mix()))
        {
            text += " The raw change includes that of the mix.";
        }
    }
    if report.posts_with(PostOutcome::Other) > 0 {
        text += " The outcome is “other” if a background topic fits better than all labels.";
    }
    if report.posts_with(PostOutcome::Unsure) > 0 {
        text += " The outcome is “unsure” if no score reaches the threshold; the mean score is then that of the best scores.";
    }
    text
}

fn quotes(posts: &[QuotedPost], is_close: bool) -> Vec<Quote> {
    let quote = |post: &QuotedPost| {
        let score = |LabelScore { label, score }: &LabelScore| {
            format!(
                "{} {}",
                display::single_line(label, 48),
                display::score(*score)
            )
        };
        let best = match &post.best[..] {
            [first, second, ..] if is_close => {
                Some(format!("{} or {}", score(first), score(second)))
            }
            [first, ..] => Some(score(first)),
            [] => None,
        };
        let topic = post.topic.as_ref();
        let parts = [
            Some(format!("r/{}", post.subreddit)),
            topic.map(|topic| format!("collected for {}", display::single_line(topic, 48))),
            best,
            (!post.is_labelled).then(|| "unsure".to_owned()),
        ];
        Quote {
            title: post.text.clone(),
            link: post.link.clone(),
            text: parts.into_iter().flatten().collect::<Vec<_>>().join(" · "),
        }
    };
    posts.iter().map(quote).collect()
}

fn skipped(report: &Report) -> Vec<SkippedSubreddits> {
    let mut entries = Vec::new();
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
            Some(read) => format!("read r/{} instead of", display::single_line(read, 40)),
            None => "could not read".to_owned(),
        };
        let text = format!(
            "{}: {read} {}",
            display::single_line(&skipped.topic, 60),
            passed.join(", ")
        );
        // Later runs often skip the same subreddits.
        let is_same = |entry: &SkippedSubreddits| entry.text == text;
        if !entries.iter().any(is_same) {
            entries.push(SkippedSubreddits {
                when: time::moment(skipped.at),
                text,
            });
        }
    }
    entries.truncate(SKIPPED);
    entries
}

fn footer(report: &Report) -> String {
    let made = format!(
        "Made by topicmill from {} on {}.",
        report.database,
        time::moment(report.now)
    );
    let label_set = report.label_set.as_ref().map(|set| {
        let name = display::single_line(&set.name, 80);
        format!("Label set {name}, version {}.", set.version)
    });
    let reconciled = match report.reconciled_at.map(|at| at.map(time::moment)) {
        [None, None] => "Never checked for deletions on Reddit.".to_owned(),
        [None, Some(archive)] => format!(
            "Last checked for deletions in Arctic Shift on {archive}, which misses later ones; never on Reddit."
        ),
        [Some(reddit), None] => format!("Last checked for deletions on Reddit on {reddit}."),
        [Some(reddit), Some(archive)] => format!(
            "Last checked for deletions on Reddit on {reddit}, and in Arctic Shift on {archive}."
        ),
    };
    let topics: Vec<String> = report
        .keywords
        .iter()
        .map(|row| display::single_line(&row.to_string(), 240) + ".")
        .collect();
    let keywords = (!topics.is_empty()).then(|| format!("Collected for {}", topics.join(" ")));
    let sentences = [
        Some(made),
        label_set,
        keywords,
        Some(reconciled),
        Some("This page loads no external resources.".to_owned()),
    ];
    sentences
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" ")
}
