//! Writes the report's headline and summary.
//!
//! The headline states the largest label and the largest change, but only if these are statistically significant.

use super::data::{Agreement, Change, OutcomeStats, Report};
use super::time;
use crate::display::{percent, single_line, thousands};
use topicmill_review::drift::{DriftVerdict, as_f64, is_significantly_larger};
use topicmill_store::PostOutcome;

/// Maximum number of characters in a label in a headline.
const NAME: usize = 48;
/// Minimum share of posts without a label that the headline states.
const MIN_WITHOUT_LABEL: f64 = 0.5;

/// Returns the headline.
pub fn headline(report: &Report) -> String {
    if report.posts == 0 && report.is_bounded {
        return "No posts in this period".to_owned();
    }
    if report.posts == 0 {
        return "No posts stored yet".to_owned();
    }
    let scored = report.scored();
    if scored == 0 {
        return match report.posts {
            1 => "1 post is not labelled yet".to_owned(),
            posts => format!("{} posts are not labelled yet", thousands(posts)),
        };
    }
    let labels: Vec<&OutcomeStats> = report.labels().collect();
    let none = report.posts_with(PostOutcome::Other) + report.posts_with(PostOutcome::Unsure);
    let share = as_f64(none) / as_f64(scored);
    let of_posts = &of_posts(report);
    let leader = labels.first().filter(|_| share < MIN_WITHOUT_LABEL);
    let change = report.period.and_then(|_| largest_change(&labels));
    let and = |sentence: String| match &change {
        Some((label, change)) => format!(
            "{sentence}, and {} {change}",
            single_line(&label.name, NAME)
        ),
        None => sentence,
    };
    match (
        leader.map(|leader| (leader, leads(leader, &labels, of_posts))),
        &change,
    ) {
        (None, _) => and(format!("{} of {of_posts} got no label", percent(share))),
        (Some((leader, Leads::One(sentence))), Some((label, change)))
            if leader.slug == label.slug =>
        {
            format!("{sentence}: its share {change}")
        }
        (Some((_, Leads::One(sentence) | Leads::Several(sentence))), _) => and(sentence),
        // A significant change takes precedence over the lack of a leading label.
        (Some((_, Leads::None)), Some((label, change))) => {
            format!(
                "{} {change} of {of_posts}",
                capital(&single_line(&label.name, NAME))
            )
        }
        (Some((leader, Leads::None)), None) => headline_without_leader(report, leader),
    }
}

/// Describes the posts that shares refer to: all posts, or the labelled posts if some are not labelled yet.
fn of_posts(report: &Report) -> String {
    match report.scored() {
        scored if scored == report.posts => "posts".to_owned(),
        scored => format!("{} labelled posts", thousands(scored)),
    }
}

/// The labels that are significantly larger than the rest.
enum Leads {
    /// One label leads, as this sentence states.
    One(String),
    /// Two labels lead, as this sentence states.
    Several(String),
    /// No label leads.
    None,
}

/// Finds the labels that lead and states their shares.
fn leads(leader: &OutcomeStats, labels: &[&OutcomeStats], of_posts: &str) -> Leads {
    let name = capital(&single_line(&leader.name, NAME));
    let is_ahead = |a: &OutcomeStats, b: &OutcomeStats| {
        is_significantly_larger(a.posts, b.posts, labels.len())
    };
    match labels[1..] {
        [] => Leads::One(format!("{name}: {} of {of_posts}", percent(leader.share))),
        [second, ..] if is_ahead(leader, second) => Leads::One(format!(
            "{name} leads with {} of {of_posts}",
            percent(leader.share)
        )),
        [second, third, ..] if is_ahead(second, third) => {
            let (one, other) = (percent(leader.share), percent(second.share));
            let second = single_line(&second.name, NAME);
            Leads::Several(format!(
                "{name} and {second} lead with {one} and {other} of {of_posts}"
            ))
        }
        _ => Leads::None,
    }
}

/// Returns the headline if no label leads and no share changed significantly.
fn headline_without_leader(report: &Report, leader: &OutcomeStats) -> String {
    let of_posts = of_posts(report);
    // This applies only if every post's topic is a label because the sentence states a share of all scored posts.
    let Agreement { agreed, comparable } = report.agreement;
    if comparable > 0 && comparable == report.scored() {
        let share = percent(as_f64(agreed) / as_f64(comparable));
        return format!(
            "{share} of {of_posts} are labelled as their topic, and no label stands out"
        );
    }
    let name = capital(&single_line(&leader.name, NAME));
    let share = percent(leader.share);
    format!("No label stands out: the largest is {name}, with {share} of {of_posts}")
}

/// Returns the label with the largest significant change, and a phrase that describes the change.
fn largest_change<'r>(labels: &[&'r OutcomeStats]) -> Option<(&'r OutcomeStats, String)> {
    // The order is reversed because `max_by` returns the last of several equal changes; it then belongs to the larger
    // label.
    let changes = labels.iter().rev();
    let changes = changes.filter_map(|line| Some((*line, line.change?)));
    let real = changes.filter(|(_, change)| change.is_significant);
    // Changes are rounded so that rounding errors do not decide between equal ones.
    let size = |change: &Change| (change.difference().abs() * 1e9).round();
    let (label, change) = real.max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b)))?;
    let verb = if change.difference() > 0.0 {
        "grew"
    } else {
        "fell"
    };
    let sentence = format!(
        "{verb} from {} to {}",
        percent(change.from),
        percent(change.to)
    );
    Some((label, sentence))
}

/// Returns the summary under the headline: posts, period, model and labels.
pub fn lead(report: &Report) -> String {
    let (Some(first), Some(last)) = (report.first, report.last) else {
        if report.is_bounded {
            return "Change --since or --until to select a different period.".to_owned();
        }
        return "Run “topicmill collect” to collect posts for your topics, or “topicmill import” to read them from a \
                file. “topicmill demo” creates an example of this page."
            .to_owned();
    };
    let period = time::period(first, last);
    let posts = match report.posts {
        1 => "1 post".to_owned(),
        posts => format!("{} posts", thousands(posts)),
    };
    let Some(model) = report.model.as_ref().filter(|_| report.scored() > 0) else {
        return format!("{posts}, {period}. Run “topicmill classify” to label them.");
    };
    let labels = match report.labels().count() {
        1 => "1 label".to_owned(),
        labels => format!("{} labels", thousands(labels as u64)),
    };
    let compared = match (report.period, report.drift) {
        (Some(period), Some(drift)) => {
            let (before, after) = period.names();
            let chance = match drift.verdict() {
                DriftVerdict::Chance => "; the mix of labels did not change significantly",
                _ => "",
            };
            format!(
                " Compared: {before} with {} labelled posts, {after} with {}{chance}.",
                thousands(drift.before),
                thousands(drift.after)
            )
        }
        _ => String::new(),
    };
    let left_out: Vec<String> = [
        (report.waiting, "not labelled yet"),
        (report.without_text, "without text"),
    ]
    .into_iter()
    .filter(|(posts, _)| *posts > 0)
    .map(|(posts, why)| format!("{} {why}", thousands(posts)))
    .collect();
    let left_out = match &left_out[..] {
        [] => String::new(),
        all => format!(" Left out of all shares: {}.", all.join(", ")),
    };
    format!(
        "{posts}, {period}. Model {}, {labels}.{left_out}{compared}",
        single_line(model, 80)
    )
}

/// Capitalises the first letter.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
