//! The first line of the report: what the numbers say, in a sentence, and no more than they say.

use super::data::{Change, OutcomeStats, Report};
use super::time;
use crate::display::{percent, single_line, thousands};
use topicmill_review::drift::{DriftVerdict, as_f64, is_significantly_larger};
use topicmill_store::Fate;

/// Characters of a label in a headline.
const NAME: usize = 48;
/// From this share on, that posts have no label is what there is to say.
const MOST_NONE: f64 = 0.5;

/// The headline.
pub fn headline(report: &Report) -> String {
    if report.posts == 0 && report.is_bounded {
        return "No post was posted in this time".to_owned();
    }
    if report.posts == 0 {
        return "No post is stored yet".to_owned();
    }
    let scored = report.scored();
    if scored == 0 {
        return match report.posts {
            1 => "One post waits for its label".to_owned(),
            posts => format!("{} posts wait for their labels", thousands(posts)),
        };
    }
    let labels: Vec<&OutcomeStats> = report.labels().collect();
    let none = report.of(Fate::Other) + report.of(Fate::Unsure);
    let share = as_f64(none) / as_f64(scored);
    let leader = labels.first().filter(|_| share < MOST_NONE);
    let change = report.period.and_then(|_| changed(&labels));
    let and = |said: String| match &change {
        Some((label, change)) => format!("{said}, and {} {change}", single_line(&label.name, NAME)),
        None => said,
    };
    match (
        leader.map(|leader| (leader, leads(leader, &labels))),
        &change,
    ) {
        (None, _) => and(format!(
            "{} of the posts fit none of the labels",
            percent(share)
        )),
        (Some((leader, Leads::One(said))), Some((label, change))) if leader.slug == label.slug => {
            format!("{said}: its share {change}")
        }
        (Some((_, Leads::One(said) | Leads::Several(said))), _) => and(said),
        // That something changed says more than that nothing leads.
        (Some((_, Leads::Nobody)), Some((label, change))) => {
            format!(
                "{} {change} of the posts",
                capital(&single_line(&label.name, NAME))
            )
        }
        (Some((leader, Leads::Nobody)), None) => nothing(report, leader),
    }
}

/// Which labels are larger than the others, by more than chance.
enum Leads {
    /// One, in a sentence.
    One(String),
    /// Two, in a sentence.
    Several(String),
    /// None is.
    Nobody,
}

/// What there is to say of the largest label.
fn leads(leader: &OutcomeStats, labels: &[&OutcomeStats]) -> Leads {
    let name = capital(&single_line(&leader.name, NAME));
    let is_ahead = |a: &OutcomeStats, b: &OutcomeStats| {
        is_significantly_larger(a.posts, b.posts, labels.len())
    };
    match labels[1..] {
        [] => Leads::One(format!("{name}: {} of the posts", percent(leader.share))),
        [second, ..] if is_ahead(leader, second) => Leads::One(format!(
            "{name} leads with {} of the posts",
            percent(leader.share)
        )),
        [second, third, ..] if is_ahead(second, third) => {
            let (one, other) = (percent(leader.share), percent(second.share));
            let second = single_line(&second.name, NAME);
            Leads::Several(format!(
                "{name} and {second} lead with {one} and {other} of the posts"
            ))
        }
        _ => Leads::Nobody,
    }
}

/// What there is to say where nothing leads and nothing changed.
fn nothing(report: &Report, leader: &OutcomeStats) -> String {
    if report.agreement.1 > 0 {
        let share = percent(as_f64(report.agreement.0) / as_f64(report.agreement.1));
        return format!(
            "{share} of the posts get the label of their topic, and no label stands out"
        );
    }
    let name = capital(&single_line(&leader.name, NAME));
    let share = percent(leader.share);
    format!("No label stands out: {name} has the most posts, {share}")
}

/// The label whose share changed most, of those that changed by more than chance, and how.
fn changed<'r>(labels: &[&'r OutcomeStats]) -> Option<(&'r OutcomeStats, String)> {
    // Of equal changes the one of the larger label: it comes last.
    let changes = labels.iter().rev();
    let changes = changes.filter_map(|line| Some((*line, line.change?)));
    let real = changes.filter(|(_, change)| change.is_significant);
    // Rounded, because two differences of floats that are equal on paper differ in their last bits.
    let size = |change: &Change| (change.difference().abs() * 1e9).round();
    let (label, change) = real.max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b)))?;
    let verb = if change.difference() > 0.0 {
        "grew"
    } else {
        "fell"
    };
    let said = format!(
        "{verb} from {} to {}",
        percent(change.from),
        percent(change.to)
    );
    Some((label, said))
}

/// What the report is of.
pub fn lead(report: &Report) -> String {
    let (Some(first), Some(last)) = (report.first, report.last) else {
        if report.is_bounded {
            return "Other times may have posts: --since and --until say which time is shown."
                .to_owned();
        }
        return "“topicmill collect” stores posts of your topics, and “topicmill import” those of a file. \
                “topicmill demo” shows what this page then looks like."
            .to_owned();
    };
    let period = time::period(first, last);
    let posts = match report.posts {
        1 => "One post".to_owned(),
        posts => format!("{} posts", thousands(posts)),
    };
    let Some(model) = report.model.as_ref().filter(|_| report.scored() > 0) else {
        return format!("{posts}, {period}. “topicmill classify” labels them.");
    };
    let labels = match report.labels().count() {
        1 => "one label".to_owned(),
        labels => format!("{} labels", thousands(labels as u64)),
    };
    let compared = match (report.period, report.drift.map(|drift| drift.verdict())) {
        (Some(_), Some(DriftVerdict::Chance)) => {
            " The mix of labels changed no more than chance would change it."
        }
        _ => "",
    };
    format!(
        "{posts}, {period}. {} gave them {labels}.{compared}",
        single_line(model, 80)
    )
}

/// A text with a capital letter.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}
