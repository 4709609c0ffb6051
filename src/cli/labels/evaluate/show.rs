//! An evaluation for people, and for programs.

use serde_json::{Value, json};

use super::confusion;
use crate::cli::CliError;
use crate::cli::labels::against::{self, Compared};
use crate::cli::labels::{Found, NONE, calibrate, settings_json, short};
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
const INTERVALS: &str = "Intervals have 95 %: Wilson's for shares, a bootstrap of 1,000 resamples (fewer above 100,000 \
                         posts) with a fixed seed for macro-F1.";

/// What is evaluated, for people.
pub(super) struct Names<'a> {
    pub(super) set: &'a LabelSet,
    pub(super) model: String,
    pub(super) model_hash: String,
}

impl Names<'_> {
    fn line(&self) -> String {
        let (set, hash) = (&self.set.name, self.set.hash());
        format!("{set} ({}), by {}", short(&hash), self.model)
    }

    fn json(&self) -> Value {
        json!({
            "label_set": settings_json(self.set),
            "model": { "name": self.model, "manifest_hash": self.model_hash },
        })
    }

    fn slug(&self, label: Option<usize>) -> Option<&str> {
        label.map(|label| self.set.labels[label].slug.as_str())
    }

    fn given(&self, row: &Judged) -> Option<&str> {
        self.slug(row.given())
    }
}

/// Prints how good one labelling is.
pub(super) fn one(
    names: &Names,
    held: &Held,
    limit: usize,
    format: OutputFormat,
) -> Result<(), CliError> {
    let rows = &held.rows[0];
    let of = evaluate(rows, names.set.labels.len());
    if format == OutputFormat::Csv {
        return output::print_table(&tidy(names, &of), format);
    }
    let mut json = names.json();
    json["posts"] = json!(held.posts.len());
    json["left_out"] = json!(held.left_out);
    json["evaluation"] = evaluation_json(names, &of);
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
    let heading = output::wrapped(&heading).trim_end().to_owned();
    let summary = Table {
        columns: ["figure", "value", "95 %", "posts"]
            .map(String::from)
            .to_vec(),
        rows: figures(of).into_iter().map(Figure::row).collect(),
    };
    let mut parts = vec![
        (heading, summary),
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
struct Figure {
    name: &'static str,
    key: &'static str,
    value: f64,
    interval: Option<(f64, f64)>,
    posts: usize,
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
fn figures(of: &Evaluation) -> Vec<Figure> {
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
    let two = |share: &Share| calibrate::share(share, 2);
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
                    calibrate::share(&bin.right, 2),
                ]
            })
            .collect(),
    }
}

fn evaluation_json(names: &Names, of: &Evaluation) -> Value {
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

/// All figures in one table, a figure in each row.
fn tidy(names: &Names, of: &Evaluation) -> Table {
    let slug = |label: usize| names.set.labels.get(label).map_or("", |label| &label.slug);
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for figure in figures(of) {
        let (low, high) = figure.interval.unzip();
        rows.push(vec![
            json!("summary"),
            json!(figure.key),
            json!(""),
            json!(""),
            json!(figure.value),
            json!(low),
            json!(high),
            json!(figure.posts),
        ]);
    }
    for (label, of) in names.set.labels.iter().zip(&of.labels) {
        let share = |what: &str, share: &Share| {
            let interval = share.share.map(|_| (share.low, share.high)).unzip();
            let (gold, given) = if what == "precision" {
                ("", &label.slug[..])
            } else {
                (&label.slug[..], "")
            };
            vec![
                json!("label"),
                json!(what),
                json!(gold),
                json!(given),
                json!(share.share),
                json!(interval.0),
                json!(interval.1),
                json!(share.all),
            ]
        };
        rows.push(share("precision", &of.precision));
        rows.push(share("recall", &of.recall));
        let (slug, f1, posts) = (json!(label.slug), json!(of.f1), json!(of.support()));
        rows.push(vec![
            json!("label"),
            json!("f1"),
            slug.clone(),
            slug,
            f1,
            json!(null),
            json!(null),
            posts,
        ]);
    }
    for cell in &of.confusion {
        rows.push(vec![
            json!("confusion"),
            json!("posts"),
            json!(slug(cell.gold)),
            json!(slug(cell.given)),
            json!(cell.posts),
            json!(null),
            json!(null),
            json!(cell.posts),
        ]);
    }
    for bin in of.reliability.iter().filter(|bin| bin.right.all > 0) {
        let right = &bin.right;
        rows.push(vec![
            json!("reliability"),
            json!(format!("{:.1}-{:.1}", bin.from, bin.to)),
            json!(""),
            json!(""),
            json!(right.share),
            json!(right.low),
            json!(right.high),
            json!(right.all),
        ]);
    }
    Table {
        columns: [
            "part", "figure", "gold", "given", "value", "low", "high", "posts",
        ]
        .map(String::from)
        .to_vec(),
        rows,
    }
}

/// Prints how two labellings of the same posts differ.
pub(super) fn two(
    names: [&Names; 2],
    held: &Held,
    limit: usize,
    format: OutputFormat,
) -> Result<(), CliError> {
    let compared = against::compared(held, names.map(|names| names.set));
    let differing = differing(names, held);
    let row = |place: usize| {
        let post = &held.posts[place];
        let [a, b] = [0, 1].map(|side| names[side].given(&held.rows[side][place]).unwrap_or(NONE));
        vec![
            json!(post.id.as_str()),
            json!(gold_word(&post.gold)),
            json!(a),
            json!(b),
            json!(who(held, place)),
        ]
    };
    let columns = ["post", "gold", "first", "second", "right"];
    let shown = || differing.iter().take(limit).copied();
    if format == OutputFormat::Csv {
        let mut table = Table {
            columns: columns.map(String::from).to_vec(),
            rows: shown().map(row).collect(),
        };
        table.columns.push("title".into());
        for (row, place) in table.rows.iter_mut().zip(shown()) {
            row.push(json!(held.posts[place].title));
        }
        return output::print_table(&table, format);
    }
    let mut parts = two_parts(names, held, &compared);
    if limit > 0 && !differing.is_empty() {
        let titles = shown().map(|place| held.posts[place].title.as_str());
        let table = with_titles(&columns, shown().map(row).collect(), titles);
        let heading = format!(
            "Posts that the two label differently: {} of {}, those first that one of them has right",
            differing.len().min(limit),
            differing.len()
        );
        parts.push((heading, table));
    }
    let json = two_json(names, held, &compared, &mut shown());
    Found {
        json,
        main: 0,
        parts,
    }
    .print(format)
}

/// Posts whose outcomes differ, those first that only the first labelling has right, then only the second.
fn differing(names: [&Names; 2], held: &Held) -> Vec<usize> {
    let outcome = |side: usize, place: usize| names[side].given(&held.rows[side][place]);
    let mut differing: Vec<usize> = (0..held.posts.len())
        .filter(|place| outcome(0, *place) != outcome(1, *place))
        .collect();
    differing.sort_by_key(|place| match who(held, *place) {
        "first" => 0,
        "second" => 1,
        _ => 2,
    });
    differing
}

/// Which labelling has a post right.
fn who(held: &Held, place: usize) -> &'static str {
    match [0, 1].map(|side| held.rows[side][place].is_right()) {
        [true, true] => "both",
        [true, false] => "first",
        [false, true] => "second",
        [false, false] => "neither",
    }
}

fn two_parts(names: [&Names; 2], held: &Held, compared: &Compared) -> Vec<(String, Table)> {
    let Compared {
        first,
        second,
        difference,
    } = compared;
    let heading = format!(
        "{} posts with gold labels. First: {}. Second: {}. {INTERVALS} The interval of the difference of outcomes is \
         the adjusted Wald interval for pairs.",
        held.posts.len(),
        names[0].line(),
        names[1].line()
    );
    let share = |name: &str, of: fn(&Evaluation) -> &Share| {
        let cells = [first, second].map(|side| calibrate::share(of(side), 3));
        std::iter::once(json!(name))
            .chain(cells)
            .chain([Value::Null])
            .collect::<Vec<Value>>()
    };
    let mut rows = vec![
        share("right outcome", |of| &of.outcome),
        share("in scope: right label", |of| &of.in_scope),
        share("in scope: any label", |of| &of.coverage),
        share("out of scope: no label", |of| &of.out_of_scope),
        share("precision", |of| &of.precision),
        vec![
            json!("macro-F1"),
            against::estimate(&first.macro_f1),
            against::estimate(&second.macro_f1),
            against::estimate(&difference.macro_f1),
        ],
    ];
    rows[0][3] = against::estimate(&difference.outcome);
    rows.retain(|row| !(row[1].is_null() && row[2].is_null()));
    let error = |of: &Evaluation| json!(of.calibration_error.map(|error| format!("{error:.3}")));
    rows.push(vec![
        json!("calibration error"),
        error(first),
        error(second),
        Value::Null,
    ]);
    let only = format!(
        "{} right in the first only, {} in the second only: by chance alone, {}.",
        difference.only_first,
        difference.only_second,
        match against::p(difference.p) {
            Value::String(p) if p.starts_with('<') => format!("p {p} (McNemar's exact test)"),
            p => format!(
                "p = {} (McNemar's exact test)",
                p.as_str().unwrap_or_default()
            ),
        }
    );
    vec![
        (
            output::wrapped(&heading).trim_end().to_owned(),
            Table {
                columns: ["figure", "first", "second", "difference"]
                    .map(String::from)
                    .to_vec(),
                rows,
            },
        ),
        (
            output::wrapped(&only).trim_end().to_owned(),
            Table {
                columns: vec![],
                rows: vec![],
            },
        ),
    ]
}

fn two_json(
    names: [&Names; 2],
    held: &Held,
    compared: &Compared,
    shown: &mut dyn Iterator<Item = usize>,
) -> Value {
    let mut json = json!({
        "posts": held.posts.len(), "left_out": held.left_out, "a": names[0].json(), "b": names[1].json(),
        "difference": compared.difference,
    });
    json["a"]["evaluation"] = evaluation_json(names[0], &compared.first);
    json["b"]["evaluation"] = evaluation_json(names[1], &compared.second);
    json["differing"] = shown
        .map(|place| {
            let post = &held.posts[place];
            let [a, b] = [0, 1].map(|side| &held.rows[side][place]);
            json!({
                "id": post.id, "title": post.title, "gold": post.gold, "a": names[0].given(a),
                "b": names[1].given(b), "score_a": a.score, "score_b": b.score, "right": who(held, place),
            })
        })
        .collect();
    json
}

fn gold_word(word: &str) -> &str {
    if word.is_empty() { NONE } else { word }
}

/// A table of posts whose titles end where the terminal does.
fn with_titles<'a>(
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
