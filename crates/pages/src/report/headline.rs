//! Writes the report's headline, and describes the periods that it compares.
//!
//! The headline says at most two things: which label has the largest share, and which assigned share changed most. It
//! says either only if it is statistically significant. Shares are estimated from random answers if there are enough;
//! an assigned share is called one.

use super::data::{Change, OutcomeStats, Report};
use super::time;
use crate::display::{counted, interval, percent, single_line, thousands};
use topicmill_review::as_f64;
use topicmill_review::change::is_significantly_larger;
use topicmill_review::evaluate::{LabelShare, NO_LABEL};

/// Maximum number of characters in a label in a headline.
const NAME: usize = 48;
/// Minimum share of posts without a label that the headline states.
const MIN_WITHOUT_LABEL: f64 = 0.5;

/// Returns the headline.
pub fn headline(report: &Report) -> String {
    let (thing, things) = (report.kind.as_str(), report.kind.plural());
    if report.posts == 0 && report.is_bounded {
        return format!("No {things} in this period");
    }
    if report.posts == 0 {
        return format!("No {things} stored yet");
    }
    if report.scored() == 0 {
        let are = if report.posts == 1 { "is" } else { "are" };
        return format!("{} {are} not labelled yet", counted(report.posts, thing));
    }
    match (largest_share(report), largest_change(report)) {
        (Some(share), Some(change)) => format!("{share}; {change}"),
        (Some(share), None) => share,
        (None, Some(change)) => capital(&change),
        (None, None) => spread(report),
    }
}

/// Describes the posts that shares refer to: all posts, the scored posts if some are not scored or, for estimates, the
/// posts that the answers cover.
fn of_posts(report: &Report) -> String {
    if let Some(quality) = &report.quality
        && let Some(frame) = &quality.frame
        && frame.not_covered > 0
        && report.estimates().is_some()
    {
        return match frame.until {
            Some(until) => format!("posts stored until {}", time::day(until)),
            None => format!(
                "the {} posts that the answers cover",
                thousands(frame.posts)
            ),
        };
    }
    let things = report.kind.plural();
    match report.scored() {
        scored if scored == report.posts => things.to_owned(),
        scored => format!("{} scored {things}", thousands(scored)),
    }
}

/// Formats an estimated share with its interval.
fn estimate(value: f64, share: &LabelShare, of_posts: &str) -> String {
    format!(
        "an estimated {} of {of_posts} ({})",
        percent(value),
        interval(share.estimated.low, share.estimated.high)
    )
}

/// Returns the name of a label for the headline.
fn name_of(report: &Report, slug: &str) -> String {
    let line = report.labels().find(|line| line.slug == slug);
    single_line(line.map_or(slug, |line| &line.name), NAME)
}

/// Describes shares of which none is clearly the largest. It states no share, because the largest of several similar
/// shares is too large by chance.
fn spread(report: &Report) -> String {
    let fits = |line: &&OutcomeStats| {
        let estimate = report.estimate_of(&line.slug);
        line.posts > 0 || estimate.is_some_and(|one| one.estimated.value > Some(0.0))
    };
    let labels: Vec<&OutcomeStats> = report.labels().filter(fits).collect();
    match &labels[..] {
        [] => format!("No {} got a label", report.kind),
        [only] => format!("The only label is {}", single_line(&only.name, NAME)),
        labels => format!(
            "{} are spread over {} labels, and none is clearly the most common",
            capital(report.kind.plural()),
            labels.len()
        ),
    }
}

/// States the share of the label whose share is significantly larger than all others; `None` if there is none.
fn largest_share(report: &Report) -> Option<String> {
    match report.estimates() {
        Some(shares) => largest_estimate(report, shares),
        None => largest_assigned(report),
    }
}

/// States the largest estimated share if its interval is above all others. Two shares of one sample depend on each
/// other; whatever their correlation, intervals of equal shares lie apart in at most 5 % of samples.
fn largest_estimate(report: &Report, shares: &[LabelShare]) -> Option<String> {
    let of_posts = of_posts(report);
    let (none, labels): (Vec<_>, Vec<_>) = shares
        .iter()
        .filter_map(|share| Some((share.estimated.value?, share)))
        .partition(|(_, share)| share.label == NO_LABEL);
    if let [(value, none)] = none[..]
        && none.estimated.low >= MIN_WITHOUT_LABEL
    {
        let share = capital(&estimate(value, none, &of_posts));
        return Some(format!("{share} fit none of the labels"));
    }
    let (value, first) = *labels.iter().max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let name = capital(&name_of(report, &first.label));
    let share = estimate(value, first, &of_posts);
    let next = labels
        .iter()
        .filter(|(_, share)| share.label != first.label)
        .map(|(_, share)| share.estimated.high)
        .reduce(f64::max);
    match next {
        None => Some(format!("{name} fits {share}")),
        Some(high) if first.estimated.low > high => {
            Some(format!("{name} fits {share}, more than any other label"))
        }
        Some(_) => None,
    }
}

/// States the largest assigned share if it is significantly larger than all others.
fn largest_assigned(report: &Report) -> Option<String> {
    let of_posts = of_posts(report);
    let without_label = as_f64(report.without_label()) / as_f64(report.scored());
    if without_label >= MIN_WITHOUT_LABEL {
        let share = percent(without_label);
        return Some(format!("{share} of {of_posts} got no label"));
    }
    let labels: Vec<&OutcomeStats> = report.labels().collect();
    let first = labels.first()?;
    let name = capital(&single_line(&first.name, NAME));
    let share = percent(first.share);
    match labels.get(1) {
        None => Some(format!("{name} is assigned to {share} of {of_posts}")),
        Some(second) if is_significantly_larger(first.posts, second.posts, labels.len()) => Some(
            format!("{name} is assigned to {share} of {of_posts}, more than any other label"),
        ),
        Some(_) => None,
    }
}

/// States the largest significant change of an assigned share.
fn largest_change(report: &Report) -> Option<String> {
    let compared = report.compared.as_ref().ok()?;
    // The order is reversed because `max_by` returns the last of several equal changes; it then belongs to the larger
    // label.
    let labels: Vec<&OutcomeStats> = report.labels().collect();
    // Changes are rounded so that rounding errors do not decide between equal ones.
    let size = |change: &Change| (change.share.difference().abs() * 1e9).round();
    let (label, change) = labels
        .iter()
        .rev()
        .filter_map(|line| Some((line, line.change?)))
        .filter(|(_, change)| change.is_significant())
        .max_by(|(_, a), (_, b)| size(a).total_cmp(&size(b)))?;
    let (from, to) = (percent(change.share.from), percent(change.share.to));
    if from == to {
        return None;
    }
    let verb = if change.share.difference() > 0.0 {
        "grew"
    } else {
        "fell"
    };
    let place = compared.which_subreddits();
    let place = place.map_or_else(String::new, |which| format!(" in {which}"));
    let name = single_line(&label.name, NAME);
    Some(format!(
        "the assigned share of {name} {verb} from {from} to {to}{place}"
    ))
}

/// Describes the periods that are compared, or says why none are, with a leading space.
pub fn comparison(report: &Report) -> String {
    let compared = match &report.compared {
        Ok(compared) => compared,
        Err(why) => return format!(" No change is shown: {}.", why.in_words()),
    };
    let [before, after] = compared.dates();
    let [posts_before, posts_after] = compared.posts.map(thousands);
    let place = compared.which_subreddits();
    let place = place.map_or_else(String::new, |which| {
        format!(" of {which}, read without gaps,")
    });
    let mut changes = report.outcomes.iter().filter_map(|line| line.change);
    let verdict = if changes.any(|change| change.is_significant()) {
        ""
    } else {
        "; no share changed significantly"
    };
    format!(
        " Compared: {posts_before} {}{place} from {before} with {posts_after} from {after}{verdict}.",
        report.kind.plural()
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
