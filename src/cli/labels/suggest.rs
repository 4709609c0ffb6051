//! `topicmill labels suggest`

mod write;

use std::path::Path;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::super::setup::PipelineFlags;
use super::super::{CliError, Exit, OutputFormat, Setup, output};
use super::{
    NamedSet, Out, Printout, WhichModel, find_stored_model, model_display_name, settings_json,
    short_hash,
};
use crate::telemetry::Progress;
use topicmill_review::suggest::{Question, SAMPLE, Suggestion, Suggestions, TopicVectors, suggest};
use topicmill_score::{LabelSet, LabelVector, hypothesis};
use topicmill_store::{Access, ModelRow, NoLabel, Store, Table, Target};

/// Fewer posts make no clusters: with 4 posts a cluster, a topic would have to be an eighth of them.
const MIN_POSTS: u64 = 30;
/// Titles of a cluster that are shown.
const TITLES: usize = 2;
/// The word for the label set that the views show.
const CURRENT: &str = "current";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels suggest
  topicmill labels suggest --label-set my-labels.toml --out more-labels.toml")]
pub struct Suggest {
    /// Look at the posts that this label set leaves without a label: `current`, a pipeline file, or the name or first
    /// letters of the version of a stored one
    #[arg(long, value_name = "SET", default_value = CURRENT)]
    label_set: String,
    /// Look at posts of this outcome
    #[arg(long, value_enum, default_value_t)]
    outcome: Outcome,
    /// Suggest nothing for fewer posts than this [default: one in a hundred of those looked at, and at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    min_posts: Option<u64>,
    /// Suggest this many labels at most, those of the most posts first
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Posts that got no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Outcome {
    /// The background fits them better than each label
    #[default]
    Other,
    /// Their best score is below the threshold
    Unsure,
    /// Other and unsure posts
    Both,
}

impl Outcome {
    fn to_store(self) -> NoLabel {
        match self {
            Self::Other => NoLabel::Other,
            Self::Unsure => NoLabel::Unsure,
            Self::Both => NoLabel::Both,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Unsure => "unsure",
            Self::Both => "other or unsure",
        }
    }
}

/// What is looked at.
struct UnlabelledPosts {
    set: LabelSet,
    target: Target,
    /// The model whose vectors count.
    vectors: (i64, ModelRow),
    /// Posts without a label, with a vector or not.
    posts: u64,
}

impl Suggest {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        self.out.check(setup)?;
        let store = setup.store(Access::ReadOnly).await?;
        let word = &self.label_set;
        let named = NamedSet::stored(setup, &store, word).await?;
        // Before the search, which may take long: a file that cannot be copied is told at once.
        let base = match &self.out.path {
            Some(_) => Some(self.base(setup, &named.set)?),
            None => None,
        };
        let Some(input) = self.find_posts(&store, named).await? else {
            store.close().await?;
            self.print(None, &Suggestions::default())?;
            return Ok(Exit::Done);
        };
        let background = self.background(setup, &store, &input).await?;
        let question = Question {
            background: background
                .as_ref()
                .map(|(vectors, names)| TopicVectors { vectors, names }),
            target: input.target,
            model: input.vectors.0,
            outcome: self.outcome.to_store(),
            min_posts: self.min_posts,
            titles: TITLES,
            sample: SAMPLE,
        };
        let bar = Progress::counter("suggest", "posts");
        let stop = || setup.stop.is_cancelled();
        let found = suggest(&store, &question, &stop, &|n| bar.add(n)).await;
        drop(bar);
        let mut found = found?;
        store.close().await?;
        if input.posts < MIN_POSTS {
            found.clusters.clear();
        }
        let clustered = found.clustered();
        let clusters = found.clusters.len();
        found.clusters.truncate(self.limit);
        self.print(Some(&input), &found)?;
        self.log_result(&input, &found, clusters, clustered);
        if let (Some(out), Some(base)) = (&self.out.path, base) {
            let shown = out.display();
            if found.clusters.is_empty() {
                tracing::info!("nothing is suggested, so `{shown}` is not written");
                return Ok(Exit::Done);
            }
            self.out.write(base.add_topics(out, &found.clusters)?)?;
            tracing::info!(
                topics = found.clusters.len(),
                "written to {shown}: give the topics at its end your own words, then `topicmill labels validate --pipeline \
                 {shown}` and `topicmill labels diff current {shown}`"
            );
        }
        Ok(Exit::Done)
    }

    /// The pipeline file that is copied: that of the label set.
    fn base(&self, setup: &Setup, set: &LabelSet) -> Result<write::BaseFile, CliError> {
        let word = Path::new(&self.label_set);
        let flags = match &self.pipeline.pipeline {
            None if word.is_file() => PipelineFlags {
                pipeline: Some(word.to_owned()),
            },
            _ => self.pipeline.clone(),
        };
        let which = WhichModel::default();
        let of_file = which.label_set(setup, flags.pipeline.as_deref())?;
        if flags.pipeline.is_none() && of_file.hash() != set.hash() {
            return Err(CliError::Usage(format!(
                "--out writes a copy of the pipeline file with more topics, and the one of the label set {} ({}) is not \
                 known: name it with --pipeline",
                short_hash(&set.hash()),
                set.name
            )));
        }
        write::BaseFile::read(setup.pipeline_path(&flags))
    }

    /// What there is to look at; `None`, and a sentence on stderr, if there is nothing.
    async fn find_posts(
        &self,
        store: &Store,
        named: NamedSet,
    ) -> Result<Option<UnlabelledPosts>, CliError> {
        let NamedSet { set, stored } = named;
        let version = short_hash(&set.hash()).to_owned();
        let target = match stored {
            Some(id) => target(store, id).await?,
            None => None,
        };
        let Some(target) = target else {
            return Err(CliError::Usage(format!(
                "no post has a label under the label set {version} ({}): run `topicmill classify --pipeline FILE` with its \
                 file first",
                set.name
            )));
        };
        let outcome = self.outcome.to_store();
        let posts = store.labels().count_without_label(target, outcome).await?;
        if posts == 0 {
            return self.explain_no_posts(&set).map(|()| None);
        }
        let models = store.labels().models().await?;
        let (own, others): (Vec<_>, Vec<_>) =
            models.into_iter().partition(|(id, _)| *id == target.model);
        let own_name = own.first().map(|(_, row)| model_display_name(row));
        for (id, row) in own.into_iter().chain(others) {
            let first = store
                .labels()
                .without_label(target, outcome, id, "", 1)
                .await?;
            if !first.is_empty() {
                return Ok(Some(UnlabelledPosts {
                    set,
                    target,
                    vectors: (id, row),
                    posts,
                }));
            }
        }
        Err(CliError::Usage(format!(
            "the {posts} posts that are {} have no stored vectors, which only embedding models make, and {} is none, or \
             retention deleted their texts: label them with the model that ships, too (`topicmill classify --model \
             models/minilm-reddit-topics`); the current labels stay",
            self.outcome.words(),
            own_name.unwrap_or_else(|| "the model that labelled them".to_owned())
        )))
    }

    /// The vectors of the background's topics with their names, where the model that made them is at hand.
    async fn background(
        &self,
        setup: &Setup,
        store: &Store,
        input: &UnlabelledPosts,
    ) -> Result<Option<(LabelVector, Vec<String>)>, CliError> {
        // Without a folder, clusters are named by their words alone.
        let Ok(folder) = WhichModel::default().folder(setup) else {
            return Ok(None);
        };
        let model = find_stored_model(store, &folder).await?;
        let topics = input.set.background_for(&folder.kind);
        if model != Some(input.vectors.0) || topics.is_empty() {
            return Ok(None);
        }
        let names = topics.iter().map(|topic| topic.label.clone()).collect();
        // That of the background comes last.
        let key = hypothesis::keys(&folder.kind, &input.set).pop();
        let ids = store.labels().find_hypotheses(&Vec::from_iter(key)).await?;
        let ids: Vec<i64> = ids.into_iter().flatten().collect();
        let vectors = store
            .computed()
            .label_vectors(input.vectors.0, &ids)
            .await?
            .pop();
        Ok(vectors.flatten().map(|vectors| (vectors, names)))
    }

    fn explain_no_posts(&self, set: &LabelSet) -> Result<(), CliError> {
        let words = self.outcome.words();
        let why = match self.outcome {
            Outcome::Other if set.background.is_none() => {
                "it has no background; write `background = \"reddit\"` into its pipeline file, run `topicmill classify \
                 --pipeline FILE`, then `topicmill labels suggest --label-set FILE`"
            }
            Outcome::Unsure if set.threshold == 0.0 => {
                "its threshold is 0, so that each post gets its best label; `topicmill labels calibrate` finds a threshold"
            }
            _ => {
                tracing::info!("no post is {words}: there is nothing to suggest");
                return Ok(());
            }
        };
        let (hash, name) = (set.hash(), &set.name);
        Err(CliError::Usage(format!(
            "no post is {words} under the label set {} ({name}): {why}",
            short_hash(&hash)
        )))
    }

    fn print(&self, input: Option<&UnlabelledPosts>, found: &Suggestions) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Csv => output::print_table(&csv_table(&found.clusters), self.format),
            format => Printout::new(self.json(input, found))
                .with("", table(&found.clusters))
                .with("Posts in the middle of each", titles(&found.clusters))
                .print(format),
        }
    }

    fn json(&self, input: Option<&UnlabelledPosts>, found: &Suggestions) -> Value {
        json!({
            "label_set": input.map(|input| settings_json(&input.set)),
            "model": input.map(|input| input.vectors.1.name.clone()),
            "outcome": self.outcome.words(),
            "posts": found.posts, "sampled": found.sampled, "clustered": found.clustered(),
            "min_posts": found.min_posts, "cut": found.cut, "clusters": found.clusters,
        })
    }

    /// What people are told beside the table.
    fn log_result(
        &self,
        input: &UnlabelledPosts,
        found: &Suggestions,
        clusters: usize,
        clustered: u64,
    ) {
        let words = self.outcome.words();
        if input.posts < MIN_POSTS {
            tracing::warn!(
                posts = input.posts,
                "too few posts are {words} to suggest labels: collect more, {MIN_POSTS} at least"
            );
            return;
        }
        if found.sampled < found.posts {
            tracing::info!(
                sampled = found.sampled,
                posts = found.posts,
                "the clusters are those of a sample, the same each time; the other posts joined them"
            );
        }
        if clusters == 0 {
            tracing::info!(
                posts = found.posts,
                min_posts = found.min_posts,
                "no cluster has so many posts: they are about too many things; try a smaller --min-posts"
            );
            return;
        }
        tracing::info!(
            posts = found.posts,
            clusters,
            clustered,
            shown = found.clusters.len(),
            "posts that are {words}, equal texts once{}",
            if self.out.path.is_none() {
                "; --out FILE writes a pipeline file with these labels"
            } else {
                ""
            }
        );
    }
}

/// Where the labels of a label set are: by the model of the current labels, else by the latest that labelled under it.
async fn target(store: &Store, label_set: i64) -> Result<Option<Target>, CliError> {
    let models = store.labels().models_with_labels(label_set).await?;
    let current = store
        .labels()
        .current_target()
        .await?
        .map(|target| target.model);
    let model = current.filter(|model| models.contains(model));
    let model = model.or(models.first().copied());
    Ok(model.map(|model| Target { model, label_set }))
}

fn table(clusters: &[Suggestion]) -> Table {
    let rows = clusters.iter().map(|cluster| {
        let percent = format!("{:.1} %", 100.0 * cluster.share);
        let is_new = |term: &&String| !cluster.label.split(" and ").any(|words| words == *term);
        let further: Vec<&String> = cluster.terms.iter().filter(is_new).collect();
        let further: String = further
            .into_iter()
            .map(|term| format!("{term}, "))
            .collect();
        let further = further.trim_end_matches(", ");
        json!([
            cluster.posts,
            format!("{percent:>6}"),
            cluster.label,
            further
        ])
    });
    output::table(["posts", "share", "label", "further words"], rows)
}

fn titles(clusters: &[Suggestion]) -> Table {
    let rows = clusters.iter().flat_map(|cluster| {
        let titles = cluster.examples.iter().enumerate();
        titles.map(move |(place, example)| {
            let label = if place == 0 { &cluster.label[..] } else { "" };
            json!([label, example.title])
        })
    });
    output::table(["label", "title"], rows)
}

/// For programs: a row a cluster.
fn csv_table(clusters: &[Suggestion]) -> Table {
    let rows = clusters.iter().map(|cluster| {
        let title = |at: usize| cluster.examples.get(at).map(|example| &example.title);
        let (terms, near) = (cluster.terms.join(", "), &cluster.background);
        let (posts, share, label) = (cluster.posts, cluster.share, &cluster.label);
        json!([posts, share, label, terms, near, title(0), title(1)])
    });
    let columns = ["posts", "share", "label", "terms", "background"];
    output::table(columns.into_iter().chain(["title_1", "title_2"]), rows)
}
