//! `topicmill labels evaluate`: evaluates one label run against gold labels, or compares two.

use std::collections::HashMap;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;

use super::estimates::{add_shares, notes};
use super::evaluation_tables::{
    INTERVALS, comparison_table, confusions_table, reliability_table, summary_table,
};
use super::figures::{labels_table, p_value};
use super::groups::add_groups;
use super::side::Side;
use super::{Printout, ResolveFlags, no_labels_yet, or_none, short_hash};
use crate::cli::{App, CliError, Exit, Kind, OutputFormat, output};
use topicmill_core::{Fullname, LabelSet, Mode};
use topicmill_review::evaluate::{Accuracies, Counted, RandomSample, difference, evaluate};
use topicmill_review::gold::GoldLabels;
use topicmill_review::join::{JoinedGold, JoinedPost, Labelling, join_gold};
use topicmill_store::{Access, Grouping, Prediction, Store};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels evaluate --gold db
  topicmill labels evaluate --by subreddit
  topicmill labels evaluate --gold gold.csv --label-set first --label-set trial
  topicmill labels evaluate --gold db --model old --model new --require-better")]
pub struct Evaluate {
    /// Compare with gold labels from FILE, the database (db) or post topics (topic)
    ///
    /// FILE is a CSV, TSV, NDJSON, JSON or Parquet file with `id` and `label` (a slug or a label's text; empty, none or
    /// other means out of scope). `topic` uses the topic that each post was collected for.
    #[arg(long, value_name = "FILE|db|topic", default_value = "db")]
    gold: String,
    #[command(flatten)]
    resolving: ResolveFlags,
    /// Evaluate the labels of posts or of comments; estimates are of posts only
    #[arg(long, value_enum, default_value_t)]
    kind: Kind,
    /// Also estimate the labels' shares in each group of posts, and compare groups
    #[arg(long, value_name = "COLUMN", value_parser = PossibleValuesParser::new(Grouping::NAMES))]
    by: Option<String>,
    /// Evaluate the label set SET [default: current]
    ///
    /// SET is `current`, a pipeline file, or the name or version prefix of a stored label set. Repeat the flag to
    /// compare two.
    #[arg(long, value_name = "SET")]
    label_set: Vec<String>,
    /// Evaluate the labels of MODEL
    ///
    /// MODEL is a folder, or the name or hash prefix of a model with stored labels. Repeat the flag to compare two. The
    /// default is the model of the current labels; with --compute, or if it has no labels of the label set, it is the
    /// model from the settings.
    #[arg(long, value_name = "MODEL")]
    model: Vec<String>,
    /// Run the model on gold posts that have no label yet, without storing the result
    #[arg(long)]
    pub compute: bool,
    /// Exit with 1 unless the second is significantly better (p < 0.05)
    #[arg(long)]
    require_better: bool,
    /// Show N posts that are labelled wrongly or, in a comparison, differently
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The gold posts of an evaluation, joined with the labels of each side.
struct JudgedPosts {
    /// All gold posts that have a label.
    all: JoinedGold,
    /// Gold posts sampled at random, if the figures use only these.
    sample: Option<JoinedGold>,
    /// True if the posts that the figures use are known to be sampled at random.
    is_random: bool,
    /// See [`GoldLabels::is_sample`].
    is_sample: bool,
    /// See [`GoldLabels::caveat`].
    caveat: Option<String>,
    /// For each side, the posts that its label set was fitted to. Each has the label of a fit without its answer.
    cross_fitted: Vec<HashMap<Fullname, Prediction>>,
}

impl JudgedPosts {
    /// Returns the posts that the figures use.
    fn used(&self) -> &JoinedGold {
        self.sample.as_ref().unwrap_or(&self.all)
    }
}

impl Evaluate {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let count = self.side_count()?;
        let store = app.store(Access::ReadOnly).await?;
        let sides = self.sides(app, &store, count).await?;
        let Some(gold) = self.judged_posts(app, &store, &sides).await? else {
            return Ok(Exit::Partial);
        };
        match &sides[..] {
            [side] => {
                let printout = self.evaluate_one(&store, side, &gold).await?;
                store.close().await?;
                printout.print(self.format)?;
                Ok(Exit::Done)
            }
            [first, second] => {
                store.close().await?;
                self.compare_two([first, second], gold.used())
            }
            _ => unreachable!("there are one or two sides"),
        }
    }

    /// Reads the gold posts, and joins them with the labels of each side. Returns `None` if stopped by a signal.
    async fn judged_posts(
        &self,
        app: &App,
        store: &Store,
        sides: &[Side],
    ) -> Result<Option<JudgedPosts>, CliError> {
        let sets: Vec<&LabelSet> = sides.iter().map(|side| &side.set).collect();
        let mut cross_fitted = Vec::new();
        for side in sides {
            cross_fitted.push(side.cross_fitted(store, &self.gold).await?);
        }
        let source = (&*self.gold, self.kind.thing_kind());
        let decides = self.resolving.decides.as_deref();
        let is_cross_fitted = |side: usize, post: &Fullname| cross_fitted[side].contains_key(post);
        let labels = GoldLabels::read(store, source, decides, &sets, is_cross_fitted).await?;
        let (is_sample, caveat) = (labels.is_sample(), labels.caveat.clone());
        let (for_estimates, drawn) = (labels.sample_for_estimates().cloned(), labels.drawn());
        let gold = labels.resolve(&sets, self.resolving.others_out_of_scope)?;
        let names: Vec<Fullname> = gold.posts.iter().map(|post| post.id.clone()).collect();
        let mut labellings = Vec::new();
        for (side, held_out) in sides.iter().zip(&cross_fitted) {
            let Some(computed) = self.computed(app, store, side, &names).await? else {
                return Ok(None);
            };
            labellings.push(Labelling {
                set: &side.set,
                stored: side.target(),
                computed,
                held_out: held_out.clone(),
            });
        }
        let all = join_gold(store, &labellings, &gold.posts).await?;
        all.check(&gold.posts)?;
        let sample = for_estimates.map(|posts| all.filtered(|post| posts.contains(post)));
        let sample = sample.filter(|sample| !sample.posts.is_empty());
        let mut used = sample.as_ref().unwrap_or(&all).posts.iter();
        let is_random = used.all(|post| drawn.contains(&post.id) && !post.id.is_comment());
        Ok(Some(JudgedPosts {
            all,
            sample,
            is_random,
            is_sample,
            caveat,
            cross_fitted,
        }))
    }

    /// Returns the number of label sets and models to evaluate: one or two.
    fn side_count(&self) -> Result<usize, CliError> {
        let count = self.label_set.len().max(self.model.len()).max(1);
        let usage = if count > 2 {
            "only two label sets or models can be compared: use --label-set and --model at most twice"
        } else if self.require_better && count < 2 {
            "--require-better compares two label sets or models: use --model or --label-set twice, the new one last"
        } else if self.by.is_some() && count > 1 {
            "--by compares groups of posts under one label set: use --label-set and --model once"
        } else {
            return Ok(count);
        };
        Err(CliError::Usage(usage.to_owned()))
    }

    /// Finds the one or two label sets and models to evaluate. A flag that is used once applies to both.
    async fn sides(&self, app: &App, store: &Store, count: usize) -> Result<Vec<Side>, CliError> {
        let current = store.labels().current_target().await?;
        let current = current.filter(|_| !self.compute);
        let mut sides = Vec::new();
        for n in 0..count {
            let argument = |words: &[String]| words.get(n).or(words.last()).cloned();
            let set = argument(&self.label_set).unwrap_or_else(|| "current".to_owned());
            let model = argument(&self.model);
            sides.push(Side::find(app, store, (&set, model.as_deref()), current).await?);
        }
        Ok(sides)
    }

    /// Computes labels of posts without a stored one from stored logits and, with --compute, by running the model.
    /// Returns `None` if stopped by a signal.
    async fn computed(
        &self,
        app: &App,
        store: &Store,
        side: &Side,
        posts: &[Fullname],
    ) -> Result<Option<HashMap<Fullname, Prediction>>, CliError> {
        if self.compute {
            return side.computed(app, store, posts).await;
        }
        match side.rescored(app, store, posts).await? {
            Some(computed) => {
                if !computed.is_empty() {
                    tracing::info!(
                        version = short_hash(&side.set.hash()),
                        posts = computed.len(),
                        "some posts have no stored label of this label set: computing their labels from stored logits, \
                         without storing them"
                    );
                }
                Ok(Some(computed))
            }
            None if side.target().is_some() => Ok(Some(HashMap::new())),
            None => Err(no_labels_yet()),
        }
    }

    /// Evaluates one label run.
    async fn evaluate_one(
        &self,
        store: &Store,
        side: &Side,
        gold: &JudgedPosts,
    ) -> Result<Printout, CliError> {
        let answers = store.gold().answers().await?;
        let estimates = match side.target() {
            Some(target) if gold.is_random => {
                let used = gold.used();
                Some(RandomSample::find(store, target, &answers, used, Counted::All).await?)
            }
            _ => None,
        };
        let estimates = estimates.as_ref();
        let used = estimates.map_or(gold.used(), |estimates| &estimates.covered);
        let mut printout = self.quality(side, gold, used, estimates);
        if gold.is_sample {
            add_shares(side, estimates, &mut printout);
        }
        add_cross_fitted(gold, used, &mut printout);
        if let Some(by) = self.by.as_deref().and_then(Grouping::named) {
            let kind = self.kind.thing_kind();
            add_groups(store, side, by, kind, estimates, &mut printout).await?;
        }
        Ok(printout)
    }

    /// Formats the quality of one label run on the gold posts in `used`, and on all if these are a sample.
    fn quality(
        &self,
        side: &Side,
        gold: &JudgedPosts,
        used: &JoinedGold,
        estimates: Option<&RandomSample>,
    ) -> Printout {
        let set = &side.set;
        let all = gold.sample.as_ref().map(|_| &gold.all);
        let mut evaluation = evaluate(&used.rows[0], set.labels.len());
        let mut json = side.json();
        if let Some(estimates) = estimates {
            let Accuracies { outcome, precision } = estimates.accuracies();
            (evaluation.outcome, evaluation.precision) = (outcome, precision);
            json["frame"] = estimates.json();
        }
        json["posts"] = json!(used.posts.len());
        json["left_out"] = json!(used.left_out);
        json["evaluation"] = evaluation.to_json(set);
        json["sample"] = json!(all.map_or("all", |_| "random"));
        let wrong = used.wrong_posts(set, self.limit);
        json["wrong"] = json!(wrong);
        let heading = quality_heading(side, gold, used.posts.len(), estimates);
        let mut printout = Printout::new(json)
            .with(&heading, summary_table(&evaluation))
            .with("Each label", labels_table(set, &evaluation.labels));
        let confused = confusions_table(set, &evaluation);
        if !confused.rows.is_empty() {
            let heading = "Largest confusions (gold label and assigned label)";
            printout.add(heading, confused);
        }
        if evaluation.precision.all > 0 {
            let heading = "Reliability: if the scores are calibrated, the mean score equals the share of right labels";
            printout.add(heading, reliability_table(&evaluation));
        }
        if let Some(all) = all {
            let evaluation = evaluate(&all.rows[0], set.labels.len());
            let posts = all.posts.len();
            printout.json["all_answers"] = evaluation.to_json(set);
            printout.json["all_answers"]["posts"] = json!(posts);
            let heading = format!("All {posts} posts with gold labels, close calls included");
            printout.add(&heading, summary_table(&evaluation));
        }
        if !wrong.is_empty() {
            let rows = wrong.iter().map(|post| {
                let gold = or_none(Some(&post.gold));
                json!([post.id, gold, post.label, post.score, post.title])
            });
            let table = output::table(["post", "gold", "label", "score", "title"], rows);
            printout.add("Wrong labels with the highest scores", table);
        }
        printout
    }

    /// Compares two label runs on the same gold posts, and prints the result.
    fn compare_two(&self, sides: [&Side; 2], gold: &JoinedGold) -> Result<Exit, CliError> {
        let sets = sides.map(|side| &side.set);
        let runs = [0, 1].map(|side| (&gold.rows[side][..], sets[side].labels.len()));
        let [first, second] = runs.map(|(rows, labels)| evaluate(rows, labels));
        let mut differing = gold.differing_posts(sets);
        let all_differing = differing.len();
        differing.truncate(self.limit);
        let difference = difference(runs[0], runs[1], all_differing);
        let mut json = json!({
            "posts": gold.posts.len(), "left_out": gold.left_out, "a": sides[0].json(), "b": sides[1].json(),
            "difference": difference, "differing": differing,
        });
        json["a"]["evaluation"] = first.to_json(sets[0]);
        json["b"]["evaluation"] = second.to_json(sets[1]);
        let heading = format!(
            "{} posts with gold labels. First: {}. Second: {}. {INTERVALS} The interval of the difference in accuracy \
             is the adjusted Wald interval for paired proportions.",
            gold.posts.len(),
            sides[0].line(),
            sides[1].line()
        );
        let table = comparison_table(&first, &second, &difference);
        let mut printout = Printout::new(json).with(&heading, table);
        printout.add_note(&format!(
            "{} posts are right only in the first, {} only in the second. McNemar's exact test: p = {}.",
            difference.only_first,
            difference.only_second,
            p_value(difference.p)
        ));
        if !differing.is_empty() {
            let heading = format!(
                "Posts that the two label differently: {} of {all_differing}, starting with those that only one gets \
                 right",
                differing.len()
            );
            let rows = differing.iter().map(|post| {
                let labels = [Some(&post.gold), post.a.as_ref(), post.b.as_ref()];
                let [gold, a, b] = labels.map(|label| or_none(label.map(String::as_str)));
                json!([post.id, gold, a, b, post.right, post.title])
            });
            let columns = ["post", "gold", "first", "second", "right", "title"];
            printout.add_csv(&heading, output::table(columns, rows));
        }
        printout.print(self.format)?;
        if self.require_better && !difference.is_better() {
            tracing::warn!(
                right_in_first_only = difference.only_first,
                right_in_second_only = difference.only_second,
                p = difference.p,
                "the second is not significantly better than the first: keep the first, or collect more gold labels"
            );
            return Ok(Exit::Partial);
        }
        Ok(Exit::Done)
    }
}

/// Says which posts the figures of one label run use, and what they are estimates for.
fn quality_heading(
    side: &Side,
    gold: &JudgedPosts,
    posts: usize,
    estimates: Option<&RandomSample>,
) -> String {
    let mut parts = vec![
        estimates.map(notes).unwrap_or_default(),
        gold.caveat.clone().unwrap_or_default(),
    ];
    if gold.sample.is_some() {
        let others = gold.all.posts.len() - posts;
        parts.push(format!(
            "These figures use only posts sampled at random, so they are estimates for all posts. {others} other posts \
             with gold labels are left out: they are close calls, which are harder than most posts, or were selected \
             with a filter or outside topicmill."
        ));
    }
    parts.push(format!(
        "{posts} posts with gold labels. Label set {}. {INTERVALS}",
        side.line()
    ));
    if side.set.mode == Mode::Multi {
        let multi = "In multi mode only the best label of a post counts; it is right if it is one of the gold labels.";
        parts.push(multi.to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" ")
}

/// Says for how many posts the labels are those of fits to the other answers.
fn add_cross_fitted(gold: &JudgedPosts, used: &JoinedGold, printout: &mut Printout) {
    let is_cross_fitted = |post: &&JoinedPost| {
        let mut sides = gold.cross_fitted.iter();
        sides.any(|side| side.contains_key(&post.id))
    };
    let posts = used.posts.iter().filter(is_cross_fitted).count();
    printout.json["cross_fitted"] = json!(posts);
    if posts > 0 {
        printout.add_note(&format!(
            "The label set was fitted to {posts} of these posts. For each, the label is that of a fit to the other \
             answers (cross-fitting)."
        ));
    }
}
