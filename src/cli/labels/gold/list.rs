//! `topicmill labels gold list` and `topicmill labels gold export`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use crate::cli::labels::{NONE, Printout};
use crate::cli::output::key_value_table;
use crate::cli::{App, CliError, Exit, OutputFormat, output, terminal};
use topicmill_review::gold::{self, Alpha, Consensus, PairAgreement};
use topicmill_store::{Access, StoredGold, Table};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels gold list
  topicmill labels gold list --format json")]
pub struct List {
    /// Show N posts on which annotators disagree
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Set the output format; json prints everything in one object
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels gold export > answers.csv
  topicmill labels gold export --format ndjson")]
pub struct Export {
    /// Set the output format
    #[arg(long, value_enum, default_value = "csv")]
    format: OutputFormat,
}

impl Export {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::ReadOnly).await?;
        let answers = store.gold().answers().await?;
        store.close().await?;
        let rows = answers.into_iter().map(|stored| {
            let gold = stored.answer;
            json!({
                "id": gold.fullname, "label": gold.label, "annotator": gold.annotator,
                "answered_at": gold.answered_at, "chosen": gold.chosen, "source": gold.source,
                "text_hash": gold.text_hash, "note": gold.note,
            })
        });
        let columns = "id, label, annotator, answered_at, chosen, source, text_hash, note";
        let table = output::table_from_objects(columns, &rows.collect::<Vec<_>>());
        output::print_table(&table, self.format)?;
        Ok(Exit::Done)
    }
}

impl List {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let store = app.store(Access::ReadOnly).await?;
        let answers = store.gold().answers().await?;
        store.close().await?;
        if answers.is_empty() && self.format == OutputFormat::Table {
            let text = "There are no gold labels yet: collect some with `topicmill serve --review`, or import a file \
                        with `topicmill labels gold import FILE`.";
            output::print(&terminal::wrap(text))?;
            return Ok(Exit::Done);
        }
        let agreed = gold::consensus(answers.clone(), None);
        printout(&answers, &agreed, self.limit).print(self.format)?;
        Ok(Exit::Done)
    }
}

/// Counts gold labels by a key.
fn count_by(answers: &[StoredGold], key: impl Fn(&StoredGold) -> String) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(key(answer)).or_default() += 1;
    }
    counts
}

fn printout(answers: &[StoredGold], agreed: &Consensus, limit: usize) -> Printout {
    let labels = count_by(answers, |gold| {
        gold.answer.label.clone().unwrap_or_else(|| NONE.to_owned())
    });
    let annotators = count_by(answers, |gold| gold.answer.annotator.clone());
    let chosen = count_by(answers, |gold| gold.answer.chosen.to_string());
    let (disputed, earlier) = (agreed.disagreements.len(), agreed.before_an_edit);
    let undisputed = agreed.posts - disputed;
    // As on the review page and in estimates, answers about comments do not count.
    let mut of_posts = answers.to_vec();
    of_posts.retain(|gold| !gold.answer.fullname.is_comment());
    let (agreement, alpha) = (gold::agreement(&of_posts), gold::alpha(&of_posts));
    let rows = [
        ("gold labels", json!(answers.len())),
        ("posts on which annotators agree", json!(undisputed)),
        ("posts on which annotators disagree", json!(disputed)),
        ("of these, without a majority", json!(agreed.undecided())),
        ("posts sampled at random", json!(agreed.random.len())),
        ("gold labels for an earlier text", json!(earlier)),
    ];
    let json = json!({
        "answers": answers.len(), "posts": undisputed, "random": agreed.random.len(),
        "before_an_edit": earlier, "labels": labels, "annotators": annotators, "chosen": chosen,
        "disagreements": agreed.disagreements, "agreement": agreement, "alpha": alpha,
    });
    let mut printout = Printout::new(json).with("", key_value_table("what", rows));
    printout.add_csv("Gold labels by label", counts_table("label", &labels));
    let by_annotator = counts_table("annotator", &annotators);
    printout.add("Gold labels by annotator", by_annotator);
    if !agreement.is_empty() {
        let heading = agreement_heading(alpha.as_ref());
        printout.add(&heading, agreement_table(&agreement));
    }
    if !agreed.disagreements.is_empty() {
        let shown = agreed.disagreements.iter().take(limit);
        let rows = shown.map(|post| {
            let labels = post.answers.iter().map(|(annotator, label)| {
                let label = label.as_deref().unwrap_or(NONE);
                format!("{annotator}: {label}")
            });
            json!([post.fullname, labels.collect::<Vec<_>>().join(", ")])
        });
        let heading = "Posts on which annotators disagree";
        printout.add(heading, output::table(["post", "gold labels"], rows));
    }
    printout
}

/// Returns a table of counts, largest first.
fn counts_table(what: &str, counts: &BTreeMap<String, u64>) -> Table {
    let mut rows: Vec<(&String, &u64)> = counts.iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    output::table([what, "gold labels"], rows.iter().map(|row| json!(row)))
}

fn agreement_heading(alpha: Option<&Alpha>) -> String {
    let overall = alpha.map_or_else(String::new, |alpha| {
        let [value, low, high] = [alpha.value, alpha.low, alpha.high].map(two_decimals);
        let posts = alpha.posts;
        format!("; Krippendorff's alpha {value} ({low} to {high}) on {posts} posts")
    });
    format!("Agreement of annotators{overall}")
}

fn agreement_table(agreement: &[PairAgreement]) -> Table {
    let rows = agreement.iter().map(|pair| {
        let (names, kappa) = (pair.annotators.join(", "), pair.kappa.map(two_decimals));
        json!([names, kappa, pair.same, pair.posts])
    });
    let columns = ["annotators", "Cohen's kappa", "same label", "posts"];
    output::table(columns, rows)
}

fn two_decimals(figure: f64) -> String {
    format!("{figure:.2}").replace('-', "−")
}
