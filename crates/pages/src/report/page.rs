//! Renders the report as HTML: its headline, figures, label table, charts and quotes. Templates are checked at compile
//! time and escape all text, except the SVG charts, which escape their own text.

use askama::Template;

use super::GENERATOR;
use super::charts::{self, Chart};
use super::data::{Agreement, LabelSetVersion, QuotedPost, Report};
use super::headline;
use super::label_table::LabelTable;
use super::time;
use crate::display::{self, counted, percent, thousands};
use topicmill_review::REVIEW_COMMAND;
use topicmill_review::as_f64;

/// Maximum number of entries about unreadable subreddits.
const SKIPPED: usize = 12;

/// The summary under the headline, formatted for display.
struct Lead {
    posts: String,
    period: String,
    /// The model, if anything is scored.
    model: Option<String>,
    labels: String,
    waiting: Option<String>,
    without_text: Option<String>,
    /// A sentence about the periods that are compared, with a leading space.
    comparison: String,
}

/// The key figures at the top of a report.
struct Figures {
    posts: String,
    scored: String,
    is_partly_scored: bool,
    /// Share of the scored posts.
    without_label: Option<String>,
    agreement: Option<AgreementFigure>,
    gaps: usize,
}

/// The agreement of labels with topics, formatted for display.
struct AgreementFigure {
    share: String,
    comparable: String,
    /// Number of scored posts that cannot be compared.
    others: Option<String>,
}

/// The labels' quality.
struct Quality {
    sentence: String,
    /// True if there is no overall estimate.
    is_warm: bool,
    /// True if the estimate is that of all periods, but the report covers only one.
    is_of_all_periods: bool,
    /// The URL for the review page.
    review: Option<&'static str>,
    /// The command that starts the review page.
    command: &'static str,
}

/// A quoted post.
struct Quote {
    title: String,
    link: Option<String>,
    /// Subreddit, topic and best scores.
    details: String,
}

/// Subreddits that could not be read.
struct SkippedSubreddits {
    when: String,
    text: String,
}

/// The origin of the report, formatted for display.
struct Footer {
    database: String,
    made_at: String,
    label_set: Option<LabelSetVersion>,
    /// Topics with the keywords that their posts were selected with.
    keywords: Vec<String>,
    checked_on_reddit: Option<String>,
    checked_in_archive: Option<String>,
}

#[derive(Template)]
#[template(path = "report/body.html")]
struct Body {
    /// `posts` or `comments`.
    things: &'static str,
    headline: String,
    /// `None` without posts.
    lead: Option<Lead>,
    is_bounded: bool,
    quality: Option<Quality>,
    figures: Option<Figures>,
    labels: Option<LabelTable>,
    charts: Vec<Chart>,
    skipped: Vec<SkippedSubreddits>,
    skipped_left_out: usize,
    closest: Vec<Quote>,
    most_confident: Vec<Quote>,
    footer: Footer,
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
    let mut skipped = skipped(report);
    let skipped_left_out = skipped.len().saturating_sub(SKIPPED);
    skipped.truncate(SKIPPED);
    let body = Body {
        things: report.kind.plural(),
        headline: headline::headline(report),
        lead: Lead::new(report),
        is_bounded: report.is_bounded,
        quality: match &report.quality {
            Some(quality) if report.scored() > 0 => Some(Quality {
                sentence: quality.sentence.clone(),
                is_warm: !quality.is_estimate(),
                is_of_all_periods: quality.is_estimate()
                    && quality.frame.is_none()
                    && report.is_bounded,
                review,
                command: REVIEW_COMMAND,
            }),
            _ => None,
        },
        figures: Figures::new(report),
        labels: LabelTable::new(report),
        charts: charts::charts(report),
        skipped,
        skipped_left_out,
        closest: quotes(&report.closest, 2),
        most_confident: quotes(&report.most_confident, 1),
        footer: Footer::new(report),
    };
    body.render().expect("writing to a string cannot fail")
}

impl Lead {
    fn new(report: &Report) -> Option<Self> {
        let model = report.model.as_ref().filter(|_| report.scored() > 0);
        let unless_none = |posts: u64| (posts > 0).then(|| thousands(posts));
        Some(Self {
            posts: counted(report.posts, report.kind.as_str()),
            period: time::period(report.first?, report.last?),
            model: model.map(|model| display::single_line(model, 80)),
            labels: counted(report.labels().count() as u64, "label"),
            waiting: unless_none(report.waiting),
            without_text: unless_none(report.without_text),
            comparison: headline::comparison(report),
        })
    }
}

impl Figures {
    /// Formats the figures; `None` without posts.
    fn new(report: &Report) -> Option<Self> {
        if report.posts == 0 {
            return None;
        }
        let scored = report.scored();
        let share = |part: u64, all: u64| percent(as_f64(part) / as_f64(all));
        let Agreement { agreed, comparable } = report.agreement;
        Some(Self {
            posts: thousands(report.posts),
            scored: thousands(scored),
            is_partly_scored: scored < report.posts,
            without_label: (scored > 0).then(|| share(report.without_label(), scored)),
            agreement: (comparable > 0).then(|| AgreementFigure {
                share: share(agreed, comparable),
                comparable: thousands(comparable),
                others: (scored > comparable).then(|| thousands(scored - comparable)),
            }),
            gaps: report.gaps.len(),
        })
    }
}

/// Formats quoted posts, each with up to `scores` of its best scores.
fn quotes(posts: &[QuotedPost], scores: usize) -> Vec<Quote> {
    let quote = |post: &QuotedPost| {
        let best: Vec<String> = post
            .best
            .iter()
            .take(scores)
            .map(|best| {
                let label = display::single_line(&best.label, 48);
                format!("{label} {}", display::score(best.score))
            })
            .collect();
        let topic = post.topic.as_ref();
        let parts = [
            Some(format!("r/{}", post.subreddit)),
            topic.map(|topic| format!("collected for {}", display::single_line(topic, 48))),
            (!best.is_empty()).then(|| best.join(" or ")),
            (!post.is_labelled).then(|| "unsure".to_owned()),
        ];
        Quote {
            title: post.text.clone(),
            link: post.link.clone(),
            details: parts.into_iter().flatten().collect::<Vec<_>>().join(" · "),
        }
    };
    posts.iter().map(quote).collect()
}

/// Describes the subreddits that could not be read, latest run first. Later runs often skip the same subreddits, so
/// equal descriptions are listed once.
fn skipped(report: &Report) -> Vec<SkippedSubreddits> {
    let mut entries: Vec<SkippedSubreddits> = Vec::new();
    for skipped in &report.skipped {
        let unread: Vec<String> = skipped
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
            unread.join(", ")
        );
        if entries.iter().all(|entry| entry.text != text) {
            entries.push(SkippedSubreddits {
                when: time::moment(skipped.at),
                text,
            });
        }
    }
    entries
}

impl Footer {
    fn new(report: &Report) -> Self {
        let keywords = report.keywords.iter();
        Self {
            database: report.database.clone(),
            made_at: time::moment(report.now),
            label_set: report.label_set.as_ref().map(|set| LabelSetVersion {
                name: display::single_line(&set.name, 80),
                version: set.version.clone(),
            }),
            keywords: keywords
                .map(|row| display::single_line(&row.to_string(), 240))
                .collect(),
            checked_on_reddit: report.checked_for_deletions.reddit.map(time::moment),
            checked_in_archive: report.checked_for_deletions.archive.map(time::moment),
        }
    }
}
