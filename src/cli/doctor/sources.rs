//! Checks the sources: credentials for Reddit, and that the archive responds and is not behind.

use chrono::TimeDelta;

use super::{Finding, State};
use crate::cli::{App, CliError, Exit};
use topicmill_core::record::QuotaLeft;
use topicmill_core::{SourceKind, format_duration};
use topicmill_sources::Source;
use topicmill_sources::arctic_shift::ArcticShift;
use topicmill_sources::reddit::Reddit;

/// Age of the archive's newest post above which the archive is behind. The alert rule in monitoring/ has the same limit.
const MAX_LAG: TimeDelta = TimeDelta::hours(6);

/// The name of the check of the archive.
const ARCHIVE: &str = "Arctic Shift";

/// Checks the archive; an error keeps its exit code.
pub(super) async fn archive(app: &App, offline: bool) -> Finding {
    let tested = test_archive(app, offline).await;
    tested.unwrap_or_else(|error| Finding::of(ARCHIVE, Err(error)))
}

/// Checks that the archive responds and is not behind: requests its newest post, and compares it with the clock.
async fn test_archive(app: &App, offline: bool) -> Result<Finding, CliError> {
    let set = app.source_settings().arctic_shift;
    let archive = ArcticShift::new(&set, app.clock.clone())?;
    if offline {
        let detail = "not tested because of --offline".to_owned();
        return Ok(Finding::of(ARCHIVE, Ok(detail)));
    }
    let newest = archive.newest_post().await?;
    let age = newest.map(|newest| app.clock.now() - newest.as_datetime());
    let is_behind = age.is_none_or(|age| age > MAX_LAG);
    let newest = match age {
        None => "it has no post of a busy subreddit".to_owned(),
        Some(age) => {
            let age = format_duration(age.max(TimeDelta::zero()));
            let effect = if is_behind {
                ", so newer posts are missing until the archive has caught up"
            } else {
                ""
            };
            format!("the newest post of a busy subreddit is {age} old{effect}")
        }
    };
    let quota = match archive.traffic().quota {
        None => "no rate limit is reported".to_owned(),
        Some(quota) => {
            let secs = secs_left(quota, app);
            format!("{:.0} requests left for the next {secs} s", quota.remaining)
        }
    };
    let detail = format!("{} responds; {newest}; {quota}", set.api_url);
    Ok(Finding {
        what: ARCHIVE,
        state: if is_behind { State::Wrong } else { State::Ok },
        exit: is_behind.then_some(Exit::TryAgain),
        detail,
    })
}

/// Returns the seconds until a quota is reset.
fn secs_left(quota: QuotaLeft, app: &App) -> i64 {
    let until = quota.resets_at.as_datetime() - app.clock.now();
    until.num_seconds().max(0)
}

/// Checks the credentials for Reddit.
pub(super) async fn credentials(app: &App, offline: bool) -> Finding {
    const WHAT: &str = "Reddit credentials";
    if app.settings().reddit.client_id.is_empty() {
        let detail = "set client_id, client_secret and user_agent in [reddit], see docs/collect.md; \
                      the source arctic-shift needs no credentials";
        return Finding::missing(WHAT, Some(Exit::Policy), detail.into());
    }
    Finding::of(WHAT, test_credentials(app, offline).await)
}

/// Requests a token and a subreddit, and returns what the credentials allow.
async fn test_credentials(app: &App, offline: bool) -> Result<String, CliError> {
    let (settings, clock) = (app.reddit_settings(), app.clock.clone());
    let reddit = Reddit::new(settings, SourceKind::Reddit, clock)?;
    if offline {
        return Ok("set; not tested because of --offline".into());
    }
    // As `collect` would, request a token and then a subreddit: here, the first of the built-in topics.
    let subreddit = &app.load_pipeline(None)?.topics[0].subreddits[0];
    let credentials = reddit.check_credentials(subreddit).await?;
    let who = if credentials.account {
        "the account of reddit.username"
    } else {
        "the application only"
    };
    let quota = match credentials.quota {
        None => "the API reports no quota".to_owned(),
        Some(quota) => {
            let (left, all) = (quota.remaining, quota.remaining + quota.used);
            let secs = secs_left(quota, app);
            format!("quota: {left:.0} of {all:.0} requests left for the next {secs} s")
        }
    };
    let ends_at = credentials.ends_at.as_datetime();
    Ok(format!(
        "accepted for {who}, scope `{}`, token until {}; {quota}",
        credentials.scope,
        ends_at.format("%Y-%m-%d %H:%M UTC")
    ))
}
