//! `topicmill topic`: what is done to a topic that is stored.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::output::{self, OutputFormat};
use super::setup::Setup;
use super::{CliError, Exit};
use crate::pipeline_file::slug;
use crate::store::{Access, Renamed, Store, Table};

/// Flags of `topic`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill topic rename gaming games\n\
\x20 topicmill topic rename gaming games --format json")]
pub struct Topic {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Give a topic another slug, in posts, labels, gold labels and everywhere else
    ///
    /// All of it changes at once, or nothing does. No post is labelled anew. Change the slug in the pipeline file as well
    /// before the next run; otherwise the next run collects the topic under its former slug.
    #[command(after_help = "\
Examples:\n\
\x20 topicmill topic rename gaming games\n\
\x20 topicmill --database sqlite:demo.db topic rename gaming games")]
    Rename {
        /// Rename the topic with this slug
        #[arg(value_name = "OLD")]
        old: String,
        /// Call it this, in small letters, digits and hyphens
        #[arg(value_name = "NEW")]
        new: String,
        /// Print in this format
        #[arg(long, value_enum, default_value_t)]
        format: OutputFormat,
    },
}

impl Topic {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let Command::Rename { old, new, format } = self.command;
        if slug(&new) != new || new.is_empty() {
            let like = slug(&new);
            return Err(CliError::Usage(format!(
                "rename the topic to `{new}`: a slug has small letters, digits and hyphens{}",
                if like.is_empty() {
                    String::new()
                } else {
                    format!(", as in `{like}`")
                }
            )));
        }
        if old == new {
            return Err(CliError::Usage(format!(
                "rename the topic `{old}`: it is called that already"
            )));
        }
        if ["other", "unsure"].contains(&new.as_str()) {
            return Err(CliError::Usage(format!(
                "rename the topic to `{new}`: that word stands for posts without a label; choose another one"
            )));
        }
        let store = setup.store(Access::Existing).await?;
        let running = store.running().await?;
        if let Some(run) = running.iter().find(|run| run.is_alive()) {
            return Err(CliError::Busy(format!(
                "rename the topic `{old}`: the run {} of `{}` is under way and would go on with the former slug; stop it, or \
                 wait until it is done",
                run.id.0, run.worker
            )));
        }
        if store.a_slot_runs(setup.clock.now().into()).await? {
            return Err(CliError::Busy(format!(
                "rename the topic `{old}`: a slot of a schedule runs, and its next stage would go on with the former slug; stop \
                 `schedule run`, or wait until `topicmill schedule list` shows that it ended"
            )));
        }
        let versions = versions(&store, &old, &new).await?;
        let renamed = store.rename_topic(&old, &new, &versions).await;
        store.close().await?;
        print(&renamed?, format)?;
        tracing::info!("now call it `{new}` in your pipeline file, too");
        Ok(Exit::Done)
    }
}

/// The label sets that have the slug, each with its version under the new one.
async fn versions(store: &Store, old: &str, new: &str) -> Result<Vec<(i64, String)>, CliError> {
    let mut versions = Vec::new();
    for row in store.label_sets().await? {
        let mut set = store.label_set(row.id).await?;
        let is_new = |label: &topicmill_score::Label| label.slug == new;
        let Some(place) = set.labels.iter().position(|label| label.slug == old) else {
            continue;
        };
        if set.labels.iter().any(is_new) {
            return Err(CliError::Usage(format!(
                "rename the topic `{old}`: the label set `{}` has a label `{new}` already; choose another name",
                set.name
            )));
        }
        new.clone_into(&mut set.labels[place].slug);
        versions.push((row.id, set.hash()));
    }
    Ok(versions)
}

fn print(renamed: &Renamed, format: OutputFormat) -> Result<(), CliError> {
    let counts = [
        ("posts collected for it", renamed.posts),
        ("sightings for it", renamed.sightings),
        ("watermarks and gaps", renamed.watermarks),
        ("label sets", renamed.label_sets),
        ("posts with it as their label", renamed.labels),
        ("gold labels", renamed.gold),
    ];
    let table = Table {
        columns: vec!["renamed".into(), "count".into()],
        rows: counts
            .into_iter()
            .map(|(what, n)| vec![Value::from(what), Value::from(n)])
            .collect(),
    };
    output::print_table(&table, format)
}
