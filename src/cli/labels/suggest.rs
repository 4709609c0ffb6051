//! `topicmill labels suggest`: clusters posts without a label, and suggests a label for each cluster.

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
use topicmill_review::suggest::{
    SAMPLE, SuggestOptions, Suggestion, Suggestions, TopicVectors, suggest,
};
use topicmill_score::{LabelSet, LabelVector, hypothesis};
use topicmill_store::{AbstainReason, Access, ModelRow, Store, Table, Target};

/// The minimum number of posts for clustering. With so few, even the smallest cluster (4 posts) is an eighth of them.
const MIN_POSTS: u64 = 30;
/// Example titles shown for each cluster.
const TITLES: usize = 2;
/// The word for the current label set on the command line.
const CURRENT: &str = "current";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels suggest
  topicmill labels suggest --label-set my-labels.toml --out more-labels.toml")]
pub struct Suggest {
    /// Cluster the posts that SET leaves without a label
    ///
    /// SET is `current`, a pipeline file, or the name or version prefix of a stored label set.
    #[arg(long, value_name = "SET", default_value = CURRENT)]
    label_set: String,
    /// Cluster posts with this outcome
    #[arg(long, value_enum, default_value_t)]
    outcome: Outcome,
    /// Ignore clusters with fewer posts [default: 1 % of the posts, and at least 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    min_posts: Option<u64>,
    /// Suggest at most N labels, largest clusters first
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    out: Out,
    #[command(flatten)]
    pipeline: PipelineFlags,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The reason why a post has no label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Outcome {
    /// The background fits better than every label
    #[default]
    Other,
    /// The best score is below the threshold
    Unsure,
    /// Other and unsure posts
    Both,
}

impl Outcome {
    fn to_store(self) -> AbstainReason {
        match self {
            Self::Other => AbstainReason::Other,
            Self::Unsure => AbstainReason::Unsure,
            Self::Both => AbstainReason::Both,
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

/// The posts to cluster.
struct UnlabelledPosts {
    set: LabelSet,
    target: Target,
    /// The model whose vectors are clustered.
    vectors: (i64, ModelRow),
    /// The number of posts without a label, with or without a vector.
    posts: u64,
}

impl Suggest {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        self.out.check(setup)?;
        let store = setup.store(Access::ReadOnly).await?;
        let word = &self.label_set;
        let named = NamedSet::stored(setup, &store, word).await?;
        // Reject an unsuitable pipeline file before the search, which may take a long time.
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
        let question = SuggestOptions {
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
                tracing::info!("no label is suggested, so `{shown}` was not written");
                return Ok(Exit::Done);
            }
            self.out.write(base.add_topics(out, &found.clusters)?)?;
            tracing::info!(
                topics = found.clusters.len(),
                "wrote {shown}: reword the topics at its end, then run `topicmill labels validate --pipeline {shown}` \
                 and `topicmill labels diff current {shown}`"
            );
        }
        Ok(Exit::Done)
    }

    /// Reads the pipeline file of the label set, which --out copies.
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
                "--out writes a copy of the pipeline file with more topics, but the pipeline file of the label set {} \
                 ({}) is unknown: name it with --pipeline",
                short_hash(&set.hash()),
                set.name
            )));
        }
        write::BaseFile::read(setup.pipeline_path(&flags))
    }

    /// Finds the posts to cluster. If there are none, logs that and returns `None`.
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
                "no post has a label of the label set {version} ({}): run `topicmill classify --pipeline FILE` with \
                 its file first",
                set.name
            )));
        };
        let outcome = self.outcome.to_store();
        let posts = store.labels().count_abstained(target, outcome).await?;
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
                .abstained_texts(target, outcome, id, "", 1)
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
            "the {posts} posts that are {} have no stored vectors: {} is not an embedding model, or retention deleted \
             their texts; also label them with the default model (`topicmill classify --model \
             models/minilm-reddit-topics`), which keeps the current label set",
            self.outcome.words(),
            own_name.unwrap_or_else(|| "the model that labelled them".to_owned())
        )))
    }

    /// Returns the vectors and names of the background's topics, if the model that computed them is available.
    async fn background(
        &self,
        setup: &Setup,
        store: &Store,
        input: &UnlabelledPosts,
    ) -> Result<Option<(LabelVector, Vec<String>)>, CliError> {
        // Without the model folder, clusters are not compared with the background.
        let Ok(folder) = WhichModel::default().folder(setup) else {
            return Ok(None);
        };
        let model = find_stored_model(store, &folder).await?;
        let topics = input.set.background_for(&folder.kind);
        if model != Some(input.vectors.0) || topics.is_empty() {
            return Ok(None);
        }
        let names = topics.iter().map(|topic| topic.label.clone()).collect();
        // The key of the background is the last one.
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
                "it has no background; add `background = \"reddit\"` to its pipeline file, run `topicmill classify \
                 --pipeline FILE`, then `topicmill labels suggest --label-set FILE`"
            }
            Outcome::Unsure if set.threshold == 0.0 => {
                "its threshold is 0, so every post gets its best label; `topicmill labels calibrate` finds a threshold"
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
                .with("Example posts of each cluster", titles(&found.clusters))
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

    /// Logs what the table does not show.
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
                "too few posts are {words} to suggest labels: at least {MIN_POSTS} are needed; collect more"
            );
            return;
        }
        if found.sampled < found.posts {
            tracing::info!(
                sampled = found.sampled,
                posts = found.posts,
                "clustered a fixed random sample of the posts, and assigned the other posts to these clusters"
            );
        }
        if clusters == 0 {
            tracing::info!(
                posts = found.posts,
                min_posts = found.min_posts,
                "no cluster is large enough, because the posts are too diverse: try a smaller --min-posts"
            );
            return;
        }
        tracing::info!(
            posts = found.posts,
            clusters,
            clustered,
            shown = found.clusters.len(),
            "clustered the posts that are {words} (identical texts count once){}",
            if self.out.path.is_none() {
                "; --out FILE writes a pipeline file with these labels"
            } else {
                ""
            }
        );
    }
}

/// Returns the target of a label set's stored labels: with the current model, or else with the latest model that has
/// labels of it.
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

/// One row per cluster, for CSV.
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
