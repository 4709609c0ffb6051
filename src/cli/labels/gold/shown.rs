//! `topicmill labels gold list` and `topicmill labels gold export`

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::super::{Found, NONE, facts};
use crate::cli::output::{self, OutputFormat};
use crate::cli::setup::Setup;
use crate::cli::{CliError, Exit};
use crate::review::gold::{self, Agreed};
use crate::store::{Access, StoredGold, Table};

/// Flags of `labels gold list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill labels gold list\n\
\x20 topicmill labels gold list --format json")]
pub struct List {
    /// Show this many posts on which people disagree
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print in this format; json has everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// Flags of `labels gold export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill labels gold export > answers.csv\n\
\x20 topicmill labels gold export --format ndjson")]
pub struct Export {
    /// Print in this format
    #[arg(long, value_enum, default_value = "csv")]
    format: OutputFormat,
}

impl Export {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::ReadOnly).await?;
        let row = |one: StoredGold| {
            let answer = one.answer;
            vec![
                json!(answer.fullname),
                json!(answer.label),
                json!(answer.reviewer),
                json!(answer.answered_at),
                json!(answer.chosen),
                json!(answer.source),
                json!(answer.text_hash),
            ]
        };
        let columns = [
            "id",
            "label",
            "reviewer",
            "answered_at",
            "chosen",
            "source",
            "text_hash",
        ];
        let table = Table {
            columns: columns.map(String::from).to_vec(),
            rows: store.gold().await?.into_iter().map(row).collect(),
        };
        output::print_table(&table, self.format)?;
        Ok(Exit::Done)
    }
}

impl List {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let store = setup.store(Access::ReadOnly).await?;
        let answers = store.gold().await?;
        if answers.is_empty() && self.format == OutputFormat::Table {
            let text = "Nobody has said anything yet: `topicmill serve --review` asks, and `topicmill labels gold import FILE` \
                        reads what was said elsewhere.";
            output::print(&output::wrapped(text))?;
            return Ok(Exit::Done);
        }
        let agreed = gold::agreed(answers.clone());
        found(&answers, &agreed, self.limit).print(self.format)?;
        Ok(Exit::Done)
    }
}

/// How many answers have something in common.
fn counted(answers: &[StoredGold], of: impl Fn(&StoredGold) -> String) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for one in answers {
        *counts.entry(of(one)).or_default() += 1;
    }
    counts
}

fn table(what: &str, counts: &BTreeMap<String, u64>) -> Table {
    let mut counts: Vec<(&String, &u64)> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rows = counts.into_iter();
    Table {
        columns: vec![what.to_owned(), "answers".to_owned()],
        rows: rows
            .map(|(word, count)| vec![json!(word), json!(count)])
            .collect(),
    }
}

fn said(who: &str, label: Option<&str>) -> String {
    format!("{who}: {}", label.unwrap_or(NONE))
}

fn found(answers: &[StoredGold], agreed: &Agreed, limit: usize) -> Found {
    let labels = counted(answers, |one| {
        one.answer.label.clone().unwrap_or_else(|| NONE.to_owned())
    });
    let people = counted(answers, |one| one.answer.reviewer.clone());
    let chosen = counted(answers, |one| one.answer.chosen.to_string());
    let posts = agreed.rows.len();
    let summary = facts(vec![
        ("answers", json!(answers.len())),
        ("posts on which people agree", json!(posts)),
        ("drawn at random among them", json!(agreed.random.len())),
        (
            "posts on which people disagree",
            json!(agreed.disagreements.len()),
        ),
        (
            "answers about an earlier text",
            json!(agreed.before_an_edit),
        ),
    ]);
    let mut parts = vec![
        (String::new(), summary),
        ("Answers of each label".into(), table("label", &labels)),
        ("Answers of each person".into(), table("reviewer", &people)),
    ];
    if !agreed.disagreements.is_empty() {
        let shown = agreed.disagreements.iter().take(limit);
        let rows = shown.map(|post| {
            let each = post.said.iter();
            let each = each.map(|(who, label)| said(who, label.as_deref()));
            vec![
                json!(post.fullname),
                Value::from(each.collect::<Vec<_>>().join(", ")),
            ]
        });
        let table = Table {
            columns: vec!["post".into(), "answers".into()],
            rows: rows.collect(),
        };
        parts.push((
            "Posts on which people disagree, left out of `--gold db`".into(),
            table,
        ));
    }
    Found {
        json: json!({
            "answers": answers.len(), "posts": posts, "random": agreed.random.len(),
            "before_an_edit": agreed.before_an_edit, "labels": labels, "reviewers": people, "chosen": chosen,
            "disagreements": agreed.disagreements,
        }),
        main: 1,
        parts,
    }
}
