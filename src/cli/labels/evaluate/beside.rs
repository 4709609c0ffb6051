//! Two labellings of the same posts, side by side, for people and for programs.

use serde_json::{Value, json};

use super::show::{INTERVALS, Names, evaluation_json, gold_word, with_titles};
use crate::cli::CliError;
use crate::cli::labels::against::{self, Compared};
use crate::cli::labels::{Found, NONE, as_heading};
use crate::cli::output::{self, OutputFormat};
use crate::review::calibrate::Share;
use crate::review::evaluate::{Difference, Evaluation};
use crate::review::held::Held;
use crate::store::Table;

/// Prints how two labellings of the same posts differ; gives the difference.
pub(super) fn print(
    names: [&Names; 2],
    held: &Held,
    limit: usize,
    format: OutputFormat,
) -> Result<Difference, CliError> {
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
        output::print_table(&table, format)?;
        return Ok(compared.difference);
    }
    let mut parts = two_parts(names, held, &compared);
    if limit > 0 && !differing.is_empty() {
        let titles = shown().map(|place| held.posts[place].title.as_str());
        let table = with_titles(&columns, shown().map(row).collect(), titles);
        let heading = as_heading(&format!(
            "Posts that the two label differently: {} of {}, those first that one of them has right",
            differing.len().min(limit),
            differing.len()
        ));
        parts.push((heading, table));
    }
    let json = two_json(names, held, &compared, &mut shown());
    Found {
        json,
        main: 0,
        parts,
    }
    .print(format)?;
    Ok(compared.difference)
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
    let heading = format!(
        "{} posts with gold labels. First: {}. Second: {}. {INTERVALS} The interval of the difference of outcomes is \
         the adjusted Wald interval for pairs.",
        held.posts.len(),
        names[0].line_beside(names[1]),
        names[1].line_beside(names[0])
    );
    let difference = &compared.difference;
    let chance = format!(
        "{} posts are right in the first only, {} in the second only. Chance alone makes so uneven a difference, or a \
         more uneven one, with a probability of {} (McNemar's exact test).",
        difference.only_first,
        difference.only_second,
        against::p(difference.p)
    );
    let nothing = Table {
        columns: vec![],
        rows: vec![],
    };
    vec![
        (as_heading(&heading), summary(compared)),
        (as_heading(&chance), nothing),
    ]
}

/// The figures of both, and by how much the second is better.
fn summary(compared: &Compared) -> Table {
    let Compared {
        first,
        second,
        difference,
    } = compared;
    let share = |name: &str, of: fn(&Evaluation) -> &Share| {
        let [a, b] = [first, second].map(|side| against::share(of(side), 3));
        vec![json!(name), a, b, Value::Null]
    };
    let error = |of: &Evaluation| json!(of.calibration_error.map(|error| format!("{error:.3}")));
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
        vec![
            json!("calibration error"),
            error(first),
            error(second),
            Value::Null,
        ],
    ];
    rows[0][3] = against::estimate(&difference.outcome);
    rows.retain(|row| !(row[1].is_null() && row[2].is_null()));
    Table {
        columns: ["figure", "first", "second", "difference"]
            .map(String::from)
            .to_vec(),
        rows,
    }
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
