//! `topicmill labels evaluate`: evaluates one label run against gold labels, or compares two.

mod shares;

use std::collections::HashMap;

use clap::Args;
use serde_json::{Value, json};

use self::shares::{SHARE_POSTS, add_shares, totals};
use super::super::{CliError, Exit, OutputFormat, Setup, output};
use super::gold_source::{self, estimate, share};
use super::side::Side;
use super::{NONE, Printout, no_labels_yet, rows_from_objects, short_hash};
use topicmill_core::Fullname;
use topicmill_review::evaluate::{Difference, Evaluation, difference, evaluate};
use topicmill_review::join::{JoinedGold, Labelling};
use topicmill_score::{LabelSet, Mode};
use topicmill_store::{Access, Store, Table};

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
  topicmill labels evaluate --gold gold.csv --label-set first --label-set trial
  topicmill labels evaluate --gold db --model old --model new --require-better")]
pub struct Evaluate {
    /// Compare with gold labels from FILE, the database (db) or post topics (topic)
    ///
    /// FILE is a CSV, TSV, NDJSON, JSON or Parquet file with `id` and `label` (a slug or a label's text; empty, none or
    /// other means out of scope). `topic` uses the topic that each post was collected for.
    #[arg(long, value_name = "FILE|db|topic", default_value = "db")]
    gold: String,
    /// Count gold labels outside the label set as out of scope
    #[arg(long)]
    others_out_of_scope: bool,
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
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        if self.label_set.len() > 2 || self.model.len() > 2 {
            return Err(CliError::Usage(
                "only two label sets or models can be compared: use --label-set and --model at most twice".into(),
            ));
        }
        let places = self.label_set.len().max(self.model.len()).max(1);
        if self.require_better && places < 2 {
            return Err(CliError::Usage(
                "--require-better compares two label sets or models: use --model or --label-set twice, the new one \
                 last"
                .into(),
            ));
        }
        let store = setup.store(Access::ReadOnly).await?;
        let gold_labels = gold_source::read(&store, &self.gold).await?;
        let caveat = gold_labels.caveat();
        // Topics are not a random sample.
        let is_sample = caveat.is_none();
        let sides = self.sides(setup, &store, places).await?;
        let sets: Vec<&LabelSet> = sides.iter().map(|side| &side.set).collect();
        let gold_labels = gold_source::hold_out(&store, gold_labels, &sets).await?;
        let gold_labels = gold_source::leave_out_partly_offered(&store, gold_labels, &sets).await?;
        let is_sample = is_sample && !gold_labels.is_selective();
        let estimates_shares = |side: &Side| is_sample && side.set.mode == Mode::Single;
        let sample = gold_labels.sample_for_estimates().cloned();
        let all_random = sample.is_none() && gold_labels.is_representative(1);
        let gold = gold_source::resolve(gold_labels, &sets, self.others_out_of_scope)?;
        let posts: Vec<Fullname> = gold.posts.iter().map(|post| post.id.clone()).collect();
        let mut labellings = Vec::new();
        for side in &sides {
            let Some(labelling) = self.labelling(setup, &store, side, &posts).await? else {
                return Ok(Exit::Partial);
            };
            labellings.push(labelling);
        }
        let whole = gold_source::join(&store, &labellings, &gold).await?;
        let drawn = sample.map(|sample| whole.restricted_to(&sample));
        let drawn = drawn.filter(|drawn| !drawn.posts.is_empty());
        let held = drawn.as_ref().unwrap_or(&whole);
        // `held` is the whole if no random post is left.
        let sampled = drawn.as_ref().or(all_random.then_some(&whole));
        let random = sampled.map_or(0, |sampled| sampled.posts.len());
        let totals = match &sides[..] {
            [one] if random >= SHARE_POSTS && estimates_shares(one) => totals(&store, one).await?,
            _ => None,
        };
        store.close().await?;
        match &sides[..] {
            [one] => {
                let whole = drawn.as_ref().map(|_| &whole);
                let mut found = self.evaluate_one(one, held, whole, caveat);
                if let Some(totals) = totals {
                    add_shares(&mut found, &one.set, &held.rows[0], &totals);
                } else if random < SHARE_POSTS && estimates_shares(one) {
                    let note = format!(
                        "The label shares need {SHARE_POSTS} random gold posts ({random} so far)."
                    );
                    found.add(&note, output::table([], []));
                }
                found.print(self.format)?;
            }
            [a, b] => {
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

    /// Finds the one or two label sets and models to evaluate. A flag that is used once applies to both.
    async fn sides(
        &self,
        setup: &Setup,
        store: &Store,
        places: usize,
    ) -> Result<Vec<Side>, CliError> {
        let mut sides = Vec::new();
        for place in 0..places {
            let argument = |words: &[String]| words.get(place).or(words.last()).cloned();
            let set = argument(&self.label_set).unwrap_or_else(|| "current".to_owned());
            let model = argument(&self.model);
            sides.push(Side::find(setup, store, (&set, model.as_deref()), self.compute).await?);
        }
        Ok(sides)
    }

    /// Returns the stored labels of a side, or if it has none, labels computed from stored logits. With --compute, also
    /// computes labels for the posts that have none. Returns `None` if stopped by a signal.
    async fn labelling<'a>(
        &self,
        setup: &Setup,
        store: &Store,
        side: &'a Side,
        posts: &[Fullname],
    ) -> Result<Option<Labelling<'a>>, CliError> {
        let made = if self.compute {
            side.computed(setup, store, posts).await?
        } else if side.target().is_some() {
            Some(HashMap::new())
        } else if let Some(known) = side.known(setup, store).await? {
            tracing::info!(
                version = short_hash(&side.set.hash()),
                "no labels of this label set are stored: computing them from stored logits, without storing them"
            );
            Some(known.labels_of_posts(store, posts).await?)
        } else {
            return Err(no_labels_yet());
        };
        Ok(made.map(|made| Labelling {
            set: &side.set,
            stored: side.target(),
            computed: made,
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
    ) -> Printout {
        let (set, rows) = (&side.set, &held.rows[0]);
        let evaluation = evaluate(rows, set.labels.len());
        let mut wrong: Vec<usize> = (0..rows.len())
            .filter(|place| rows[*place].given().is_some() && !rows[*place].is_right())
            .collect();
        wrong.sort_by(|a, b| rows[*b].score.total_cmp(&rows[*a].score));
        wrong.truncate(self.limit);
        let given = |place: usize| label_slug(set, rows[place].given());
        let mut json = side.json();
        json["posts"] = json!(held.posts.len());
        json["left_out"] = json!(held.left_out);
        json["evaluation"] = evaluation_json(set, &evaluation);
        json["sample"] = json!(whole.map_or("all", |_| "random"));
        let one = |place: &usize| {
            let post = &held.posts[*place];
            json!({
                "id": post.id, "title": post.title, "gold": post.gold, "label": given(*place),
                "score": rows[*place].score,
            })
        };
        json["wrong"] = wrong.iter().map(one).collect();
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
        if let Some(caveat) = caveat {
            heading = format!("{caveat} {heading}");
        }
        let mut found = Printout::new(json)
            .with(&heading, summary(&evaluation))
            .with("Each label", labels_table(set, &evaluation));
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
            found.json["all_answers"] = json!({
                "outcome": all.outcome, "in_scope": all.in_scope, "coverage": all.coverage,
                "in_scope_labelled": all.in_scope_labelled, "precision": all.precision,
                "out_of_scope": all.out_of_scope, "macro_f1": all.macro_f1, "posts": posts,
            });
            let heading = format!("All {posts} posts with gold labels, close calls included");
            found.add(&heading, summary(&all));
        }
        if !wrong.is_empty() {
            let keys = ["id", "gold", "label", "score", "title"];
            let rows = rows_from_objects(&found.json["wrong"], &keys);
            let table = output::table(["post", "gold", "label", "score", "title"], rows);
            found.add("Wrong labels with the highest scores", table);
        }
        found
    }

    fn compare_two(&self, sides: [&Side; 2], held: &JoinedGold) -> (Printout, Difference) {
        let sets = sides.map(|side| &side.set);
        let given =
            |side: usize, place: usize| label_slug(sets[side], held.rows[side][place].given());
        let [a, b] = [0, 1].map(|side| (&held.rows[side][..], sets[side].labels.len()));
        let (first, second) = (evaluate(a.0, a.1), evaluate(b.0, b.1));
        let same = |place: usize| given(0, place) == given(1, place);
        let difference = difference(a, b, &same);
        let mut differing: Vec<usize> = (0..held.posts.len())
            .filter(|place| !same(*place))
            .collect();
        // First the posts that only the first side gets right, then the posts that only the second side gets right.
        differing.sort_by_key(|place| match right_side(held, *place) {
            "first" => 0,
            "second" => 1,
            _ => 2,
        });
        let all = differing.len();
        differing.truncate(self.limit);
        let mut json = json!({
            "posts": held.posts.len(), "left_out": held.left_out, "a": sides[0].json(), "b": sides[1].json(),
            "difference": difference,
        });
        json["a"]["evaluation"] = evaluation_json(sets[0], &first);
        json["b"]["evaluation"] = evaluation_json(sets[1], &second);
        let one = |place: &usize| {
            let post = &held.posts[*place];
            json!({
                "id": post.id, "title": post.title, "gold": post.gold, "a": given(0, *place), "b": given(1, *place),
                "score_a": held.rows[0][*place].score, "score_b": held.rows[1][*place].score,
                "right": right_side(held, *place),
            })
        };
        json["differing"] = differing.iter().map(one).collect();
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
            if difference.p < 0.0001 {
                "under 0.0001".to_owned()
            } else {
                format!("{:.4}", difference.p)
            }
        );
        let both = figures(&first).into_iter().zip(figures(&second));
        let both = both.filter(|((_, a, _), (_, b, _))| !(a.is_null() && b.is_null()));
        let rows = both.map(|((name, a, _), (_, b, _))| {
            let apart = match name {
                OUTCOME => estimate(&difference.outcome),
                MACRO_F1 => estimate(&difference.macro_f1),
                _ => Value::Null,
            };
            json!([name, a, b, apart])
        });
        let figures = output::table(["figure", "first", "second", "difference"], rows);
        let mut found = Printout::new(json)
            .with(&heading, figures)
            .with(&chance, output::table([], []));
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

fn label_slug(set: &LabelSet, label: Option<usize>) -> Option<&str> {
    label.map(|label| set.labels[label].slug.as_str())
}

fn right_side(held: &JoinedGold, place: usize) -> &'static str {
    match [0, 1].map(|side| held.rows[side][place].is_right()) {
        [true, true] => "both",
        [true, false] => "first",
        [false, true] => "second",
        [false, false] => "neither",
    }
}

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
    let rows = figures(evaluation).into_iter();
    let rows = rows.filter(|(_, value, _)| !value.is_null());
    let rows = rows.map(|(name, value, posts)| json!([name, value, posts]));
    output::table(["figure", "value, 95 %", "posts"], rows)
}

fn labels_table(set: &LabelSet, evaluation: &Evaluation) -> Table {
    let rows = set
        .labels
        .iter()
        .zip(&evaluation.labels)
        .map(|(label, figures)| {
            let (precision, recall) = (share(&figures.precision, 2), share(&figures.recall, 2));
            let f1 = figures.f1.map(|f1| format!("{f1:.2}"));
            json!([
                label.slug,
                precision,
                recall,
                f1,
                figures.support(),
                figures.given()
            ])
        });
    let columns = ["label", "precision", "recall", "F1", "gold", "assigned"];
    output::table(columns, rows)
}

fn confusions_table(set: &LabelSet, evaluation: &Evaluation) -> Table {
    let wrong = evaluation
        .confusion
        .iter()
        .filter(|cell| cell.gold != cell.given);
    let mut wrong: Vec<_> = wrong.collect();
    wrong.sort_by_key(|cell| std::cmp::Reverse(cell.posts));
    let slug = |label: usize| set.labels.get(label).map_or(NONE, |label| &label.slug);
    let rows = wrong.into_iter().take(SHOWN_CONFUSIONS);
    let rows = rows.map(|cell| json!([slug(cell.gold), slug(cell.given), cell.posts]));
    output::table(["gold", "assigned", "posts"], rows)
}

fn reliability_table(evaluation: &Evaluation) -> Table {
    let bins = evaluation
        .reliability
        .iter()
        .filter(|bin| bin.right.all > 0);
    let rows = bins.map(|bin| {
        let range = format!("{:.1}–{:.1}", bin.from, bin.to);
        let mean = format!("{:.2}", bin.mean_score);
        json!([range, bin.right.all, mean, share(&bin.right, 2)])
    });
    output::table(["score", "posts", "mean score", "right"], rows)
}

fn evaluation_json(set: &LabelSet, evaluation: &Evaluation) -> Value {
    let slug = |label: usize| set.labels.get(label).map(|label| &label.slug);
    let mut json = json!(evaluation);
    let labels = set.labels.iter().zip(&evaluation.labels).map(|(label, figures)| {
        json!({
            "slug": label.slug, "precision": figures.precision, "recall": figures.recall, "f1": figures.f1,
            "gold": figures.support(), "given": figures.given(),
        })
    });
    json["labels"] = labels.collect();
    let cells = evaluation.confusion.iter().map(
        |cell| json!({ "gold": slug(cell.gold), "given": slug(cell.given), "posts": cell.posts }),
    );
    json["confusion"] = cells.collect();
    json
}
