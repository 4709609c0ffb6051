//! `topicmill demo`: the whole way, from posts to SQL, on the sample Reddit.

use clap::Args;

use super::collect::{Collecting, What};
use super::setup::{ModelFlags, PipelineFlags, Setup};
use super::{CliError, Exit, classify, collect, output};
use crate::analyze::sql;
use crate::config::Origin;
use crate::store::{Access, Store};

/// The demo's own database, unless one is named: a trial does not belong among real posts.
const DATABASE: &str = "sqlite:demo.db";

/// Flags of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    #[command(flatten)]
    model: ModelFlags,
}

impl Demo {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let named = setup.loaded.values["database.url"].1 == Origin::Flag;
        let url = if named {
            setup.settings().database.url.reveal()
        } else {
            DATABASE
        };
        let store = Store::open(url, Access::Create).await?;

        let pipeline = setup.pipeline(&PipelineFlags { pipeline: None })?;
        let what = What {
            source: "sample".into(),
            ..What::default()
        };
        let (reports, record) = Collecting::prepare(setup, &pipeline, &what)
            .await?
            .run(setup, &store)
            .await?;
        let collected = collect::exit(&reports, &record);
        if collected != Exit::Done || setup.stop.is_cancelled() {
            return Ok(collected);
        }
        let set = setup.label_set(&self.model, pipeline.label_set)?;
        let labeler = setup.labeler(&self.model)?;
        let (done, _) = classify::label(setup, &store, labeler, &set, None).await?;
        if setup.stop.is_cancelled() {
            return Ok(classify::exit(&done));
        }
        let query = "SELECT topic, posts, agreed AS \"labelled as this topic\", agreement \
                     FROM topic_agreement ORDER BY agreement DESC, topic";
        let table = store.query(query).await?;
        store.close().await?;
        output::print(&output::for_people(&table))?;
        output::print(&next_steps(url))?;
        Ok(classify::exit(&done))
    }
}

/// Where the data is, and three commands that work as they are printed.
fn next_steps(url: &str) -> String {
    let program = std::env::args()
        .next()
        .unwrap_or_else(|| "topicmill".into());
    debug_assert!(sql::BUILT_IN.iter().any(|(name, _)| *name == "top-posts"));
    let path = url.trim_start_matches("sqlite:");
    format!(
        "\nThe database is {path}. Try next:\n\
         \n  {program} --database {url} sql --named top-posts\
         \n  {program} --database {url} sql --named uncertain\
         \n  {program} --database {url} status\n"
    )
}
