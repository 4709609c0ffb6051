//! `topicmill labels evaluate`: evaluates one label run against gold labels, or compares two.

use std::collections::HashMap;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};

use super::estimates::{add_groups_of, add_shares, notes};
use super::figures::{estimate, labels_table, p_value, share, slug};
use super::side::Side;
use super::{Printout, ResolveFlags, no_labels_yet, rows_from_objects, short_hash};
use crate::cli::{App, CliError, Exit, Kind, OutputFormat, output};
use topicmill_core::{Fullname, LabelSet, Mode};
use topicmill_review::evaluate::{
    Counted, Difference, Evaluation, RandomSample, difference, evaluate,
};
use topicmill_review::gold::GoldLabels;
use topicmill_review::join::{JoinedGold, Labelling, join_gold};
use topicmill_store::{Access, Grouping, Store, Table};

/// The number of confusions that the table shows.
const SHOWN_CONFUSIONS: usize = 8;
/// Minimum number of gold posts in scope for a macro-F1. With fewer, some labels have only one or two posts, and their
/// F1 is mostly chance.
const MACRO_F1_POSTS: usize = 50;
/// A note on the confidence intervals and macro-F1, for table headings.
const INTERVALS: &str = "Intervals are 95 %: Wilson intervals, or a bootstrap for macro-F1, which needs 50 gold posts \
                         in scope.";

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

impl Evaluate {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let places = self.places()?;
        let store = app.store(Access::ReadOnly).await?;
        let sides = self.sides(app, &store, places).await?;
        let sets: Vec<&LabelSet> = sides.iter().map(|side| &side.set).collect();
        let decides = self.resolving.decides.as_deref();
        let mut crossed = Vec::new();
        for side in &sides {
            crossed.push(side.cross_fitted(&store, &self.gold).await?);
        }
        let is_crossed = |post: &Fullname| crossed.iter().any(|side| side.contains_key(post));
        let kept = |side: usize, post: &Fullname| crossed[side].contains_key(post);
        let labels =
            GoldLabels::read(&store, (&self.gold, self.kind.of()), decides, &sets, kept).await?;
        let caveat = labels.caveat.clone();
        let is_sample = labels.is_sample();
        let sample = labels.sample_for_estimates().cloned();
        let known_random = labels.drawn();
        let gold = labels.resolve(&sets, self.resolving.others_out_of_scope)?;
        let posts: Vec<Fullname> = gold.posts.iter().map(|post| post.id.clone()).collect();
        let mut labellings = Vec::new();
        for (side, held_out) in sides.iter().zip(&crossed) {
            let Some(labelling) = self.labelling(app, &store, side, &posts).await? else {
                return Ok(Exit::Partial);
            };
            labellings.push(Labelling {
                held_out: held_out.clone(),
                ..labelling
            });
        }
        let whole = join_gold(&store, &labellings, &gold.posts).await?;
        whole.check(&gold.posts)?;
        let drawn = sample
            .map(|sample| whole.restricted_to(&sample))
            .filter(|drawn| !drawn.posts.is_empty());
        let held = drawn.as_ref().unwrap_or(&whole);
        let is_drawn = |post: &Fullname| known_random.contains(post) && !post.is_comment();
        let is_random = held.posts.iter().all(|post| is_drawn(&post.id));
        match &sides[..] {
            [side] => {
                let whole = drawn.as_ref().map(|_| &whole);
                let answers = store.gold().answers().await?;
                let estimates = match side.target() {
                    Some(target) if is_random => Some(
                        RandomSample::find(&store, target, &answers, held, Counted::All).await?,
                    ),
                    _ => None,
                };
                let sample = estimates.as_ref();
                let held = sample.map_or(held, |sample| &sample.held);
                let mut found = self.evaluate_one(side, held, whole, caveat, sample);
                if is_sample {
                    add_shares(side, sample, &mut found);
                }
                add_cross_fitted(held, is_crossed, &mut found);
                if let Some(by) = self.by.as_deref().and_then(Grouping::named) {
                    add_groups_of(&store, (side, by, self.kind.of()), sample, &mut found).await?;
                }
                store.close().await?;
                found.print(self.format)?;
            }
            [a, b] => {
                store.close().await?;
                let (found, difference) = self.compare_two([a, b], held);
                found.print(self.format)?;
                if self.require_better && !difference.is_better() {
                    tracing::warn!(
                        right_in_first_only = difference.only_first,
                        right_in_second_only = difference.only_second,
                        p = difference.p,
                        "the second is not significantly better than the first: keep the first, or collect more gold \
                         labels"
                    );
                    return Ok(Exit::Partial);
                }
            }
            _ => unreachable!("there are one or two sides"),
        }
        Ok(Exit::Done)
    }

    /// Returns the number of label sets and models to evaluate: one or two.
    fn places(&self) -> Result<usize, CliError> {
        let usage = |text: &str| Err(CliError::Usage(text.to_owned()));
        let places = self.label_set.len().max(self.model.len()).max(1);
        if places > 2 {
            return usage(
                "only two label sets or models can be compared: use --label-set and --model at most twice",
            );
        }
        if self.require_better && places < 2 {
            return usage(
                "--require-better compares two label sets or models: use --model or --label-set twice, the new one \
                 last",
            );
        }
        if self.by.is_some() && places > 1 {
            return usage(
                "--by compares groups of posts under one label set: use --label-set and --model once",
            );
        }
        Ok(places)
    }

    /// Finds the one or two label sets and models to evaluate. A flag that is used once applies to both.
    async fn sides(&self, app: &App, store: &Store, places: usize) -> Result<Vec<Side>, CliError> {
        let mut sides = Vec::new();
        for place in 0..places {
            let argument = |words: &[String]| words.get(place).or(words.last()).cloned();
            let set = argument(&self.label_set).unwrap_or_else(|| "current".to_owned());
            let model = argument(&self.model);
            sides.push(Side::find(app, store, (&set, model.as_deref()), self.compute).await?);
        }
        Ok(sides)
    }

    /// Returns the stored labels of a side and, for posts without one, labels computed from stored logits. With
    /// --compute, also runs the model on the posts that have none. Returns `None` if stopped by a signal.
    async fn labelling<'a>(
        &self,
        app: &App,
        store: &Store,
        side: &'a Side,
        posts: &[Fullname],
    ) -> Result<Option<Labelling<'a>>, CliError> {
        let computed = if self.compute {
            side.computed(app, store, posts).await?
        } else if let Some(computed) = side.rescored(app, store, posts).await? {
            if !computed.is_empty() {
                tracing::info!(
                    version = short_hash(&side.set.hash()),
                    posts = computed.len(),
                    "some posts have no stored label of this label set: computing their labels from stored logits, \
                     without storing them"
                );
            }
            Some(computed)
        } else if side.target().is_some() {
            Some(HashMap::new())
        } else {
            return Err(no_labels_yet());
        };
        Ok(computed.map(|computed| Labelling {
            set: &side.set,
            stored: side.target(),
            computed,
            held_out: HashMap::new(),
        }))
    }

    /// Evaluates one label run on the gold posts in `held`. If `whole` is given, it contains all gold posts, and `held`
    /// is its random sample.
    fn evaluate_one(
        &self,
        side: &Side,
        held: &JoinedGold,
        whole: Option<&JoinedGold>,
        caveat: Option<String>,
        estimates: Option<&RandomSample>,
    ) -> Printout {
        let set = &side.set;
        let mut evaluation = evaluate(&held.rows[0], set.labels.len());
        let mut json = side.json();
        if let Some(estimates) = estimates {
            (evaluation.outcome, evaluation.precision) = estimates.accuracy();
            json["frame"] = estimates.json();
        }
        json["posts"] = json!(held.posts.len());
        json["left_out"] = json!(held.left_out);
        json["evaluation"] = evaluation.to_json(set);
        json["sample"] = json!(whole.map_or("all", |_| "random"));
        json["wrong"] = json!(held.wrong_posts(set, self.limit));
        let posts = held.posts.len();
        let mut heading = format!(
            "{posts} posts with gold labels. Label set {}. {INTERVALS}",
            side.line()
        );
        if set.mode == Mode::Multi {
            heading.push_str(
                " In multi mode only the best label of a post counts; it is right if it is one of the gold labels.",
            );
        }
        if let Some(whole) = whole {
            let others = whole.posts.len() - posts;
            heading = format!(
                "These figures use only posts sampled at random, so they are estimates for all posts. {others} other \
                 posts with gold labels are left out: they are close calls, which are harder than most posts, or were \
                 selected with a filter or outside topicmill. {heading}"
            );
        }
        let notes = caveat.into_iter().chain(estimates.map(notes));
        for note in notes.filter(|note| !note.is_empty()) {
            heading = format!("{note} {heading}");
        }
        let mut found = Printout::new(json)
            .with(&heading, summary(&evaluation))
            .with("Each label", labels_table(set, &evaluation.labels));
        let confused = confusions_table(set, &evaluation);
        if !confused.rows.is_empty() {
            found.add(
                "Largest confusions (gold label and assigned label)",
                confused,
            );
        }
        if evaluation.precision.all > 0 {
            let heading = "Reliability: if the scores are calibrated, the mean score equals the share of right labels";
            found.add(heading, reliability_table(&evaluation));
        }
        if let Some(whole) = whole {
            let all = evaluate(&whole.rows[0], set.labels.len());
            let posts = whole.posts.len();
            found.json["all_answers"] = all.to_json(set);
            found.json["all_answers"]["posts"] = json!(posts);
            let heading = format!("All {posts} posts with gold labels, close calls included");
            found.add(&heading, summary(&all));
        }
        let keys = ["id", "gold", "label", "score", "title"];
        let rows = rows_from_objects(&found.json["wrong"], &keys);
        if !rows.is_empty() {
            let table = output::table(["post", "gold", "label", "score", "title"], rows);
            found.add("Wrong labels with the highest scores", table);
        }
        found
    }

    fn compare_two(&self, sides: [&Side; 2], held: &JoinedGold) -> (Printout, Difference) {
        let sets = sides.map(|side| &side.set);
        let [a, b] = [0, 1].map(|side| (&held.rows[side][..], sets[side].labels.len()));
        let (first, second) = (evaluate(a.0, a.1), evaluate(b.0, b.1));
        let mut differing = held.differing_posts(sets);
        let all = differing.len();
        let difference = difference(a, b, all);
        differing.truncate(self.limit);
        let mut json = json!({
            "posts": held.posts.len(), "left_out": held.left_out, "a": sides[0].json(), "b": sides[1].json(),
            "difference": difference, "differing": differing,
        });
        json["a"]["evaluation"] = first.to_json(sets[0]);
        json["b"]["evaluation"] = second.to_json(sets[1]);
        let heading = format!(
            "{} posts with gold labels. First: {}. Second: {}. {INTERVALS} The interval of the difference in accuracy \
             is the adjusted Wald interval for paired proportions.",
            held.posts.len(),
            sides[0].line(),
            sides[1].line()
        );
        let chance = format!(
            "{} posts are right only in the first, {} only in the second. McNemar's exact test: p = {}.",
            difference.only_first,
            difference.only_second,
            p_value(difference.p)
        );
        let rows = figures(&first)
            .into_iter()
            .zip(figures(&second))
            .filter(|((_, a, _), (_, b, _))| !(a.is_null() && b.is_null()))
            .map(|((name, a, _), (_, b, _))| {
                let apart = match name {
                    OUTCOME => estimate(&difference.outcome),
                    MACRO_F1 => estimate(&difference.macro_f1),
                    _ => Value::Null,
                };
                json!([name, a, b, apart])
            });
        let figures = output::table(["figure", "first", "second", "difference"], rows);
        let mut found = Printout::new(json).with(&heading, figures);
        found.add_note(&chance);
        if !differing.is_empty() {
            let heading = format!(
                "Posts that the two label differently: {} of {all}, starting with those that only one gets right",
                differing.len()
            );
            let keys = ["id", "gold", "a", "b", "right", "title"];
            let rows = rows_from_objects(&found.json["differing"], &keys);
            let columns = ["post", "gold", "first", "second", "right", "title"];
            found.add_csv(&heading, output::table(columns, rows));
        }
        (found, difference)
    }
}

/// Names of the figures whose difference is shown with a confidence interval.
const OUTCOME: &str = "accuracy (including none of these)";
const MACRO_F1: &str = "macro-F1";

/// Returns the name, value and number of posts of each figure; the value is null if it is undefined.
fn figures(evaluation: &Evaluation) -> Vec<(&'static str, Value, usize)> {
    let error = evaluation
        .calibration_error
        .map(|error| format!("{error:.3}"));
    let macro_f1 = if evaluation.in_scope.all < MACRO_F1_POSTS {
        Value::Null
    } else {
        estimate(&evaluation.macro_f1)
    };
    let share = |name, value| (name, share(value, 3), value.all);
    vec![
        share(OUTCOME, &evaluation.outcome),
        share("recall (in scope: right label)", &evaluation.in_scope),
        share(
            "coverage in scope (any label)",
            &evaluation.in_scope_labelled,
        ),
        share("out of scope: no label", &evaluation.out_of_scope),
        share("precision of assigned labels", &evaluation.precision),
        share("coverage (posts with a label)", &evaluation.coverage),
        (MACRO_F1, macro_f1, evaluation.in_scope.all),
        (
            "calibration error (10 bins)",
            json!(error),
            evaluation.precision.all,
        ),
    ]
}

fn summary(evaluation: &Evaluation) -> Table {
    let mut figures = figures(evaluation);
    figures.retain(|(_, value, _)| !value.is_null());
    let rows = figures.into_iter().map(|figure| json!(figure));
    output::table(["figure", "value, 95 %", "posts"], rows)
}

fn confusions_table(set: &LabelSet, evaluation: &Evaluation) -> Table {
    let cells = evaluation.confusion.iter();
    let mut wrong: Vec<_> = cells.filter(|cell| cell.gold != cell.given).collect();
    wrong.sort_by_key(|cell| std::cmp::Reverse(cell.posts));
    let rows = wrong.into_iter().take(SHOWN_CONFUSIONS).map(|cell| {
        let (gold, given) = (slug(set, cell.gold), slug(set, cell.given));
        json!([gold, given, cell.posts])
    });
    output::table(["gold", "assigned", "posts"], rows)
}

fn reliability_table(evaluation: &Evaluation) -> Table {
    let bins = evaluation.reliability.iter();
    let rows = bins.filter(|bin| bin.right.all > 0).map(|bin| {
        let range = format!("{:.1}–{:.1}", bin.from, bin.to);
        let mean = format!("{:.2}", bin.mean_score);
        json!([range, bin.right.all, mean, share(&bin.right, 2)])
    });
    output::table(["score", "posts", "mean score", "right"], rows)
}

/// Says for how many posts the labels are those of fits to the other answers.
fn add_cross_fitted(
    held: &JoinedGold,
    is_held_out: impl Fn(&Fullname) -> bool,
    found: &mut Printout,
) {
    let held_out = held.posts.iter().filter(|post| is_held_out(&post.id));
    let posts = held_out.count();
    found.json["cross_fitted"] = json!(posts);
    if posts > 0 {
        found.add_note(&format!(
            "The label set was fitted to {posts} of these posts. For each, the label is that of a fit to the other \
             answers (cross-fitting)."
        ));
    }
}
