//! Checks posts with Reddit or the archive, and purges those that were deleted there.

use std::collections::HashMap;

use super::{Check, OnChecked, add, hours_before};
use crate::run::{Run, StageError};
use topicmill_core::record::PurgeCounts;
use topicmill_core::{Fullname, PurgeReason, SECOND_READING, SourceKind, Timestamp};
use topicmill_sources::Source;
use topicmill_sources::lookup::{PostState, PostStates};
use topicmill_sources::source::Paging;
use topicmill_store::{Checked, Due, Store};

/// Number of recently seen posts that are requested as controls, to verify an empty response.
const CONTROLS: u32 = 10;

/// Checks due posts until none is left, the budget is spent or the run is stopped, and purges those that are gone.
pub(super) async fn check_deleted(
    run: &Run<'_>,
    check: Check,
    source: &dyn Source,
    progress: OnChecked<'_>,
    report: &mut PurgeCounts,
) -> Result<(), StageError> {
    let started = run.now();
    let now = run.store.purging().database_now(started).await?;
    let by_archive = matches!(source.paging(), Paging::Archive(_));
    let due = Due {
        source: source.kind(),
        before: hours_before(now, check.older_than_hours),
        created_before: if by_archive {
            (now.as_datetime() - SECOND_READING).into()
        } else {
            // All posts, whatever their date.
            Timestamp::LATEST
        },
    };
    let ids_limit = u32::try_from(source.paging().ids_limit()).expect("a few hundred");
    let mut unclear = 0;
    let budget = check.max_requests.unwrap_or(u64::MAX);
    while report.requests < budget && !run.stop.is_cancelled() {
        // Posts without a verdict remain due and would be returned first again; skip them.
        let limit = ids_limit + unclear;
        let mut posts = run.store.purging().posts_due(due, limit).await?;
        posts.drain(..posts.len().min(unclear as usize));
        let Some(kind) = posts.first().map(Fullname::kind) else {
            break;
        };
        // The rest of the budget may not suffice for both posts and comments.
        if source.paging().requests_for(&posts) > budget - report.requests {
            posts.retain(|post| post.kind() == kind);
        }
        let answer = tokio::select! {
            answer = fetch_states(run.store, source, &posts, report, budget) => answer?,
            () = run.stop.cancelled() => break,
        };
        report.checked += posts.len() as u64;
        progress(posts.len() as u64);
        let Some(answer) = answer else {
            unclear += u32::try_from(posts.len()).expect("at most a request's worth");
            report.unclear += posts.len() as u64;
            continue;
        };
        let checked = classify_states(posts, answer, by_archive, report);
        // A clock that was set back must not make the same posts due again.
        let now = run.now().max(started);
        let purged = run.store.purging().purge(run.id, &checked, now);
        add(report, purged.await?);
    }
    report.left = run.store.purging().count_due(due).await?;
    report.reconciled = run.store.purging().note_reconciled(due, due.before).await?;
    Ok(())
}

/// Requests the states of posts; `None` if they are unknown.
///
/// A purge is irreversible, so a response without any of the posts is verified: the next request adds posts that Reddit
/// showed recently. Only if one of these is in the response do the others count as missing.
async fn fetch_states(
    store: &Store,
    source: &dyn Source,
    due: &[Fullname],
    report: &mut PurgeCounts,
    budget: u64,
) -> Result<Option<PostStates>, StageError> {
    report.requests += source.paging().requests_for(due);
    let Some(answer) = source.paging().posts(due).await?.states else {
        return Ok(None);
    };
    let knows = |name: &Fullname| answer.states.contains_key(name);
    // A post that the archive does not know is not gone.
    if due.iter().any(knows) || matches!(source.paging(), Paging::Archive(_)) {
        return Ok(Some(answer));
    }
    // The control request would exceed the budget, and nothing may be purged without it.
    if report.requests >= budget {
        return Ok(None);
    }
    let sample = source.kind() == SourceKind::Sample;
    let mut controls = store.purging().last_checked(sample, CONTROLS).await?;
    controls.retain(|fullname| !due.contains(fullname));
    // A request has at most a hundred posts, so the controls replace some of the posts of the first request.
    let room = source.paging().ids_limit() - CONTROLS as usize;
    let again = due.iter().take(room);
    let question: Vec<Fullname> = again.chain(&controls).cloned().collect();
    report.requests += 1;
    let answer = source.paging().posts(&question).await?.states;
    let shows_any = |states: &HashMap<_, _>| question.iter().any(|name| states.contains_key(name));
    // A small database may have no controls.
    let is_small = controls.is_empty() && due.len() < CONTROLS as usize;
    Ok(answer.filter(|answer| is_small || shows_any(&answer.states)))
}

/// Sorts posts by their states. A post without a state is missing from Reddit; that an archive does not know it says
/// nothing.
fn classify_states(
    due: Vec<Fullname>,
    answer: PostStates,
    by_archive: bool,
    report: &mut PurgeCounts,
) -> Checked {
    let PostStates {
        mut states,
        crossposts,
    } = answer;
    let mut checked = Checked {
        by_archive,
        crossposts,
        ..Checked::default()
    };
    let unknown = if by_archive {
        PostState::Visible
    } else {
        PostState::Gone(PurgeReason::Missing)
    };
    for fullname in due {
        match states.remove(&fullname).unwrap_or(unknown) {
            PostState::Visible => checked.visible.push(fullname),
            PostState::AuthorDeleted => {
                checked.author_deleted.push(fullname.clone());
                checked.visible.push(fullname);
            }
            PostState::Gone(reason) => {
                report.count(reason);
                checked.gone.push((fullname, reason));
            }
        }
    }
    // The rest was not requested: responses with crossposts include their parents.
    for (fullname, state) in states {
        if let PostState::Gone(reason) = state {
            report.count(reason);
            checked.gone.push((fullname, reason));
        }
    }
    checked
}
