//! The evaluation of one labelling for people, and for programs.

use serde_json::{Value, json};

use super::confusion;
use crate::cli::CliError;
use crate::cli::labels::{Found, NONE, against, as_heading, settings_json, short};
use crate::cli::output::{self, OutputFormat};
use crate::review::calibrate::Share;
use crate::review::evaluate::{Evaluation, Judged, evaluate};
use crate::review::held::Held;
use crate::store::Table;
use topicmill_score::{LabelSet, Mode};

/// Confusions that people are shown of all there are.
const CONFUSIONS: usize = 8;
/// Blanks between the columns of a table.
const GAP: usize = 3;
/// What a table of intervals says of them.
pub(super) const INTERVALS: &str = "Intervals have 95 %: Wilson's for shares, a bootstrap of 1,000 resamples (fewer above 100,000 \
                         posts) with a fixed seed for macro-F1.";

/// What is evaluated, for people.
pub(super) struct Names<'a> {
    pub(super) set: &'a LabelSet,
    pub(super) model: String,
    pub(super) model_hash: String,
}

impl Names<'_> {
    pub(super) fn line(&self) -> String {
        let (set, hash) = (&self.set.name, self.set.hash());
        format!("{set} ({}), by {}", short(&hash), self.model)
    }

    /// The same; the hash tells a model from another one that has its name, such as the one before it.
    pub(super) fn line_beside(&self, other: &Self) -> String {
        let line = self.line();
        if self.model == other.model && self.model_hash != other.model_hash {
            format!("{line} ({})", short(&self.model_hash))
        } else {
            line
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "label_set": settings_json(self.set),
            "model": { "name": self.model, "manifest_hash": self.model_hash },
        })
    }

    fn slug(&self, label: Option<usize>) -> Option<&str> {
        label.map(|label| self.set.labels[label].slug.as_str())
    }

    pub(super) fn given(&self, row: &Judged) -> Option<&str> {
        self.slug(row.given())
    }
}

/// Prints how good one labelling is: on the posts of `held`, which were drawn at random where there is a `whole`, which
/// has the close calls, too.
pub(super) fn print(
    names: &Names,
    held: &Held,
    whole: Option<&Held>,
    limit: usize,
    format: OutputFormat,
) -> Result<(), CliError> {
    let rows = &held.rows[0];
    let of = evaluate(rows, names.set.labels.len());
    let mut json = names.json();
    json["posts"] = json!(held.posts.len());
    json["left_out"] = json!(held.left_out);
    json["evaluation"] = evaluation_json(names, &of);
    json["sample"] = json!(whole.map_or("all", |_| "random"));
    let mut wrong: Vec<usize> = (0..rows.len())
        .filter(|place| rows[*place].given().is_some() && !rows[*place].is_right())
        .collect();
    wrong.sort_by(|a, b| rows[*b].score.total_cmp(&rows[*a].score));
    wrong.truncate(limit);
    let columns = |place: usize| {
        let row = &rows[place];
        vec![
            json!(held.posts[place].id.as_str()),
            json!(gold_word(&held.posts[place].gold)),
            json!(names.given(row).unwrap_or(NONE)),
            json!(row.score),
        ]
    };
    json["wrong"] = wrong
        .iter()
        .map(|place| {
            let (post, row) = (&held.posts[*place], &rows[*place]);
            json!({
                "id": post.id, "title": post.title, "gold": post.gold, "label": names.given(row),
                "score": row.score,
            })
        })
        .collect();
    let mut parts = one_parts(names, held.posts.len(), &of);
    if let Some(whole) = whole {
        let all = evaluate(&whole.rows[0], names.set.labels.len());
        let others = whole.posts.len() - held.posts.len();
        json["all_answers"] = against::brief(&all);
        json["all_answers"]["posts"] = json!(whole.posts.len());
        parts[0].0.insert_str(0, &drawn_at_random(others));
        let heading = format!(
            "All {} posts with gold labels, close calls included",
            whole.posts.len()
        );
        parts.insert(1, (heading, summary(&all)));
    }
    if !wrong.is_empty() {
        let titles = wrong.iter().map(|place| held.posts[*place].title.as_str());
        let cells = wrong.iter().map(|place| columns(*place)).collect();
        let table = with_titles(&["post", "gold", "label", "score"], cells, titles);
        parts.push(("The surest wrong labels".into(), table));
    }
    Found {
        json,
        main: 0,
        parts,
    }
    .print(format)
}

/// What the first figures are of.
fn drawn_at_random(others: usize) -> String {
    let text = format!(
        "These figures are of posts that were drawn at random, so they are estimates for all posts. {others} other posts \
         with gold labels do not count here: they are close calls, which are harder than most posts, or a file chose them."
    );
    output::wrapped(&text)
}

fn summary(of: &Evaluation) -> Table {
    Table {
        columns: ["figure", "value", "95 %", "posts"]
            .map(String::from)
            .to_vec(),
        rows: figures(of).into_iter().map(Figure::row).collect(),
    }
}

fn one_parts(names: &Names, posts: usize, of: &Evaluation) -> Vec<(String, Table)> {
    let mut heading = format!(
        "{posts} posts with gold labels. Label set {}. {INTERVALS}",
        names.line()
    );
    if names.set.mode == Mode::Multi {
        heading.push_str(
            " In multi mode a post counts by its best label, which is right if it is one of the post's gold labels.",
        );
    }
    let heading = as_heading(&heading);
    let mut parts = vec![
        (heading, summary(of)),
        ("Each label".into(), labels_table(names, of)),
    ];
    let nothing = || Table {
        columns: vec![],
        rows: vec![],
    };
    if let Some(square) = confusion::square(of, names.set) {
        parts.push((square.trim_end().to_owned(), nothing()));
    }
    let worst = confusions_table(names, of);
    if !worst.rows.is_empty() {
        parts.push(("The largest confusions".into(), worst));
    }
    if of.precision.all > 0 {
        let heading = "Labels by their score: a calibrated score is the share of right labels";
        parts.push((heading.into(), reliability_table(of)));
    }
    parts
}

/// A line of the summary.
pub(super) struct Figure {
    name: &'static str,
    pub(super) key: &'static str,
    pub(super) value: f64,
    pub(super) interval: Option<(f64, f64)>,
    pub(super) posts: usize,
}

impl Figure {
    fn row(self) -> Vec<Value> {
        let interval = self
            .interval
            .map(|(low, high)| format!("{low:.3}–{high:.3}"));
        vec![
            json!(self.name),
            json!(format!("{:.3}", self.value)),
            json!(interval),
            json!(self.posts),
        ]
    }
}

/// Those that are defined.
pub(super) fn figures(of: &Evaluation) -> Vec<Figure> {
    let share = |key, name, share: &Share| {
        share.share.map(|value| Figure {
            name,
            key,
            value,
            interval: Some((share.low, share.high)),
            posts: share.all,
        })
    };
    let f1 = of.macro_f1.value.map(|value| Figure {
        name: "macro-F1",
        key: "macro_f1",
        value,
        interval: Some((of.macro_f1.low, of.macro_f1.high)),
        posts: of.outcome.all,
    });
    let error = of.calibration_error.map(|value| Figure {
        name: "calibration error, 10 bins",
        key: "calibration_error",
        value,
        interval: None,
        posts: of.precision.all,
    });
    [
        share("outcome", "right outcome", &of.outcome),
        share("in_scope", "in scope: right label", &of.in_scope),
        share("coverage", "in scope: any label (coverage)", &of.coverage),
        share("out_of_scope", "out of scope: no label", &of.out_of_scope),
        share(
            "precision",
            "labels that are right (precision)",
            &of.precision,
        ),
        f1,
        error,
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn labels_table(names: &Names, of: &Evaluation) -> Table {
    let rows = names.set.labels.iter().zip(&of.labels);
    let two = |share: &Share| against::share(share, 2);
    Table {
        columns: ["label", "precision", "recall", "F1", "gold", "given"]
            .map(String::from)
            .to_vec(),
        rows: rows
            .map(|(label, of)| {
                vec![
                    json!(label.slug),
                    two(&of.precision),
                    two(&of.recall),
                    json!(of.f1.map(|f1| format!("{f1:.2}"))),
                    json!(of.support()),
                    json!(of.given()),
                ]
            })
            .collect(),
    }
}

fn confusions_table(names: &Names, of: &Evaluation) -> Table {
    let mut wrong: Vec<_> = of
        .confusion
        .iter()
        .filter(|cell| cell.gold != cell.given)
        .collect();
    wrong.sort_by_key(|cell| std::cmp::Reverse(cell.posts));
    let slug = |label: usize| {
        names
            .set
            .labels
            .get(label)
            .map_or(NONE, |label| &label.slug)
    };
    Table {
        columns: ["gold", "given", "posts"].map(String::from).to_vec(),
        rows: wrong
            .into_iter()
            .take(CONFUSIONS)
            .map(|cell| {
                vec![
                    json!(slug(cell.gold)),
                    json!(slug(cell.given)),
                    json!(cell.posts),
                ]
            })
            .collect(),
    }
}

fn reliability_table(of: &Evaluation) -> Table {
    let bins = of.reliability.iter().filter(|bin| bin.right.all > 0);
    Table {
        columns: ["score", "posts", "mean score", "right"]
            .map(String::from)
            .to_vec(),
        rows: bins
            .map(|bin| {
                vec![
                    json!(format!("{:.1}–{:.1}", bin.from, bin.to)),
                    json!(bin.right.all),
                    json!(format!("{:.2}", bin.mean_score)),
                    against::share(&bin.right, 2),
                ]
            })
            .collect(),
    }
}

pub(super) fn evaluation_json(names: &Names, of: &Evaluation) -> Value {
    let slug = |label: usize| names.set.labels.get(label).map(|label| &label.slug);
    let mut json = json!(of);
    json["labels"] = names
        .set
        .labels
        .iter()
        .zip(&of.labels)
        .map(|(label, of)| {
            json!({
                "slug": label.slug, "precision": of.precision, "recall": of.recall, "f1": of.f1,
                "gold": of.support(), "given": of.given(),
            })
        })
        .collect();
    json["confusion"] = of
        .confusion
        .iter()
        .map(|cell| json!({ "gold": slug(cell.gold), "given": slug(cell.given), "posts": cell.posts }))
        .collect();
    json
}

pub(super) fn gold_word(word: &str) -> &str {
    if word.is_empty() { NONE } else { word }
}

/// A table of posts whose titles end where the terminal does.
pub(super) fn with_titles<'a>(
    columns: &[&str],
    mut rows: Vec<Vec<Value>>,
    titles: impl Iterator<Item = &'a str>,
) -> Table {
    const SCORE: usize = 5;
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| {
            row[column]
                .as_str()
                .map_or(SCORE, |text| text.chars().count())
        });
        cells.max().unwrap_or(0).max(columns[column].len()) + GAP
    };
    let beside = (0..columns.len()).map(widest).sum::<usize>() + GAP;
    for (row, title) in rows.iter_mut().zip(titles) {
        row.push(json!(output::shortened(title, beside)));
    }
    Table {
        columns: columns
            .iter()
            .chain(&["title"])
            .map(|name| (*name).to_owned())
            .collect(),
        rows,
    }
}
