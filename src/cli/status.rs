//! `topicmill status`

use clap::Args;
use serde_json::{Value, json};

use super::output::{self, OutputFormat};
use super::setup::Setup;
use super::{CliError, Exit};
use crate::classify;
use crate::domain::RunStatus;
use crate::pipeline;
use crate::store::{Access, Failure, Gap, RunRow, Standing, Table};

/// Runs shown.
const RUNS: u32 = 5;

/// Flags of `status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill status\n\
\x20 topicmill status --format json")]
pub struct Status {
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Status {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::ReadOnly).await?;
        let standing = store
            .standing(
                setup.settings().classify.max_attempts,
                setup.clock.now().into(),
            )
            .await?;
        let mut runs = store.recent_runs(None, RUNS).await?;
        // Recorded by the next run that begins; this one only reads.
        for (dead, why) in pipeline::dead(&store, &classify::worker_name()).await? {
            if let Some(run) = runs.iter_mut().find(|run| run.id == dead.id.0) {
                RunStatus::Died.as_str().clone_into(&mut run.status);
                run.finished_at = Some(dead.seen_at);
                run.error = Some(why.to_owned());
            }
        }
        let gaps = store.gaps().await?;
        let failures = store
            .failures(setup.settings().classify.max_attempts)
            .await?;
        match self.format {
            OutputFormat::Json | OutputFormat::Ndjson => {
                let all = json!({ "backlog": standing, "failures": failures, "runs": runs, "gaps": gaps });
                output::print_json(&all, self.format)?;
            }
            OutputFormat::Csv => output::print_table(&backlog(&standing), self.format)?,
            OutputFormat::Table => {
                output::print(&output::for_people(&backlog(&standing)))?;
                if !failures.is_empty() {
                    output::print(
                        "\nSet aside after failing; `topicmill classify --select failed` tries again\n",
                    )?;
                    output::print(&output::for_people(&failures_table(&failures)))?;
                }
                output::print("\nLatest runs\n")?;
                output::print(&output::for_people(&runs_table(&runs)))?;
                if !gaps.is_empty() {
                    output::print(
                        "\nGaps: posts of these times may be missing; collect more often\n",
                    )?;
                    output::print(&output::for_people(&gaps_table(&gaps)))?;
                }
            }
        }
        if store.is_rewrite_due().await? {
            tracing::warn!(
                "bytes of purged posts may be in the database's files still: `topicmill db vacuum` rewrites them"
            );
        }
        Ok(Exit::Done)
    }
}

fn backlog(standing: &Standing) -> Table {
    let Standing {
        posts,
        labelled,
        none_of_these: _,
        other,
        unsure,
        unlabelled,
        set_aside,
        claimed,
        text_purged,
        unchecked,
        reconciled_at,
        oldest_unlabelled,
        model,
        label_set,
        label_set_hash,
    } = standing;
    let row = |what: &str, value: Value| vec![Value::from(what), value];
    Table {
        columns: vec!["backlog".into(), "value".into()],
        rows: vec![
            row("posts", json!(posts)),
            row("labelled", json!(labelled)),
            row("of those, other", json!(other)),
            row("of those, unsure", json!(unsure)),
            row("not labelled yet", json!(unlabelled)),
            row("held by workers now", json!(claimed)),
            row("set aside after failing", json!(set_aside)),
            row(
                "oldest one not labelled, collected at",
                json!(oldest_unlabelled),
            ),
            row("current model", json!(model)),
            row("current label set", json!(label_set)),
            row("its version", json!(label_set_hash.as_deref().map(short))),
            row("without text, purged unlabelled", json!(text_purged)),
            row("not seen on Reddit, or removed there", json!(unchecked)),
            row("reconciled with Reddit as of", json!(reconciled_at)),
        ],
    }
}

/// As much of a hash as `labels list` shows.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn runs_table(runs: &[RunRow]) -> Table {
    let columns = [
        "id", "stage", "status", "started", "seconds", "posts", "posts/s",
    ]
    .map(String::from)
    .to_vec();
    let row = |run: &RunRow| {
        let seconds = run
            .finished_at
            .map(|end| (end.as_datetime() - run.started_at.as_datetime()).num_seconds());
        vec![
            json!(run.id),
            json!(run.stage),
            json!(run.status),
            json!(
                run.started_at
                    .as_datetime()
                    .format("%Y-%m-%d %H:%M:%S")
                    .to_string()
            ),
            json!(seconds),
            run.counts.get("posts").cloned().unwrap_or(Value::Null),
            run.counts
                .get("posts_per_sec")
                .cloned()
                .unwrap_or(Value::Null),
        ]
    };
    Table {
        columns,
        rows: runs.iter().map(row).collect(),
    }
}

fn failures_table(failures: &[Failure]) -> Table {
    let row = |failure: &Failure| vec![json!(failure.posts), json!(failure.error)];
    Table {
        columns: vec!["posts".into(), "error".into()],
        rows: failures.iter().map(row).collect(),
    }
}

fn gaps_table(gaps: &[Gap]) -> Table {
    let columns = ["topic", "subreddit", "from", "until"]
        .map(String::from)
        .to_vec();
    let row = |gap: &Gap| {
        vec![
            json!(gap.topic),
            json!(gap.subreddit),
            json!(gap.from_at),
            json!(gap.until_at),
        ]
    };
    Table {
        columns,
        rows: gaps.iter().map(row).collect(),
    }
}
