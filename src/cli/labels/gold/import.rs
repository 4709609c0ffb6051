//! `topicmill labels gold import`: reads gold labels from a table or a Label Studio export, and stores them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::labels::{NamedSet, Printout};
use crate::cli::output::key_value_table;
use crate::cli::{App, CliError, Exit, OutputFormat};
use topicmill_core::{Fullname, GoldSource, SampleReason, Timestamp};
use topicmill_review::evaluate::{Frame, Mix, UNLIKELY};
use topicmill_review::gold::{self, GoldError, GoldRow};
use topicmill_store::{Access, GoldAnswer, SavedGold, Store};

/// Maximum number of problems of each kind that an error lists; the rest are counted.
const SHOWN_PROBLEMS: usize = 20;
/// Maximum number of line numbers that an error lists for each problem.
const SHOWN_LINES: usize = 5;
/// The annotator's name if the file, --annotator and the environment provide none.
const UNKNOWN_ANNOTATOR: &str = "someone";
/// Maximum time by which the clock of the machine that wrote a file may be ahead.
const CLOCK_DIFFERENCE: chrono::TimeDelta = chrono::TimeDelta::days(1);

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill labels gold import answers.csv --annotator ada
  topicmill labels gold import label-studio-export.json")]
pub struct Import {
    /// Read gold labels from FILE; - is stdin
    ///
    /// FILE is a CSV, TSV, NDJSON, JSON or Parquet file, or a Label Studio export. It contains `id` and `label` (a slug
    /// or a label's text; empty, none or other means out of scope), and optionally `annotator`, `answered_at`, `note`
    /// and `text_hash` (of the text that was labelled, by default the stored one).
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Set the annotator name if the file has none [default: your login name]
    #[arg(long, value_name = "NAME")]
    annotator: Option<String>,
    /// Match labels against the label set SET
    ///
    /// SET is `current`, a pipeline file, or the name or version prefix of a stored label set.
    #[arg(long, value_name = "SET", default_value = "current")]
    label_set: String,
    /// Treat the posts as a random sample of all posts
    ///
    /// Figures from them then count as estimates for all posts.
    #[arg(long)]
    random: bool,
    /// With --random: also if the posts are hardly a random sample
    #[arg(long, requires = "random")]
    yes: bool,
    /// Skip rows with an unknown label or post, and store the others
    #[arg(long)]
    skip_unknown: bool,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// The gold labels of a file, and the problems of its rows.
#[derive(Default)]
struct ParsedRows {
    answers: Vec<GoldAnswer>,
    /// For each post and annotator, the place of the answer in `answers`, and its line number.
    places: HashMap<(Fullname, String), (usize, u64)>,
    /// Unknown labels, with their line numbers.
    unknown_labels: BTreeMap<String, Vec<u64>>,
    /// Posts that are not stored, with their line numbers.
    unknown_posts: BTreeMap<Fullname, Vec<u64>>,
    /// Lines with a time in the future.
    future_lines: Vec<u64>,
    /// Posts with contradictory gold labels by the same annotator.
    contradictions: Vec<String>,
}

impl ParsedRows {
    /// Adds a gold label. Of two by the same annotator for a post, the later one counts. Without times, it is unknown
    /// which one is later.
    fn add(&mut self, answer: GoldAnswer, line: u64) {
        let key = (answer.fullname.clone(), answer.annotator.clone());
        match self.places.entry(key) {
            Entry::Vacant(place) => {
                place.insert((self.answers.len(), line));
                self.answers.push(answer);
            }
            Entry::Occupied(mut place) => {
                let (index, other_line) = place.get_mut();
                let other = &mut self.answers[*index];
                let are_ordered =
                    other.is_dated && answer.is_dated && other.answered_at != answer.answered_at;
                if other.label != answer.label && !are_ordered {
                    let post = &answer.fullname;
                    let text = format!("{post} in lines {other_line} and {line}");
                    self.contradictions.push(text);
                } else if other.answered_at <= answer.answered_at {
                    (*other, *other_line) = (answer, line);
                }
            }
        }
    }

    /// Returns true if the file contradicts itself or the clock, so that skipping unknown rows does not help.
    fn is_faulty(&self) -> bool {
        !self.contradictions.is_empty() || !self.future_lines.is_empty()
    }
}

impl Import {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let mut rows = gold::read_rows(&self.file)?;
        if self.random {
            mark_as_random(&mut rows)?;
        }
        if rows.is_empty() {
            return Err(GoldError::Empty.into());
        }
        let store = app.store(Access::Existing).await?;
        let set = NamedSet::stored(app, &store, &self.label_set).await?;
        let annotator = match self.annotator.clone().or_else(login) {
            Some(name) => gold::annotator_name(&name).map_err(CliError::Usage)?,
            None => None,
        };
        let annotator = annotator.unwrap_or_else(|| UNKNOWN_ANNOTATOR.to_owned());
        let total = rows.len();
        let parsed = parse_rows(&store, rows, &set, &annotator, app.clock.now().into()).await?;
        if parsed.is_faulty() || !self.skip_unknown {
            self.report_problems(&store, &parsed, &set).await?;
        }
        if self.random && !self.yes {
            self.check_random(&store, &parsed.answers).await?;
        }
        let left_out = total - parsed.answers.len();
        let saved = store.gold().save_gold(&parsed.answers).await?;
        store.close().await?;
        if left_out > 0 {
            tracing::warn!(
                rows = left_out,
                labels = parsed.unknown_labels.len(),
                posts = parsed.unknown_posts.len(),
                "rows were left out: their label or post is unknown, or the same annotator has a later gold label for \
                 the post"
            );
        }
        printout(&saved, left_out).print(self.format)?;
        tracing::info!(
            "`topicmill labels evaluate --gold db` compares labels with all gold labels"
        );
        Ok(Exit::Done)
    }

    /// Returns an error if the posts are hardly a random sample of the labelled posts.
    async fn check_random(&self, store: &Store, answers: &[GoldAnswer]) -> Result<(), CliError> {
        let first = answers.iter().map(|answer| answer.answered_at).min();
        let (Some(target), Some(first)) = (store.labels().current_target().await?, first) else {
            return Ok(());
        };
        let posts = distinct(answers.iter().map(|answer| &answer.fullname));
        let mut unlikely = Frame::mixes_of_file(store, target, &posts, first).await?;
        unlikely.retain(Mix::is_unlikely);
        if unlikely.is_empty() {
            return Ok(());
        }
        let mixes: Vec<&str> = unlikely.iter().map(|mix| mix.property).collect();
        Err(CliError::Usage(format!(
            "the posts in `{}` are hardly a random sample of all posts: their mix of {} differs (chi-square test, p < \
             {UNLIKELY}). Nothing was stored: if they were drawn at an earlier time, give it in a column `answered_at`; \
             if they were drawn in another way, import them without --random; if this is chance, add --yes",
            self.file.display(),
            mixes.join(" and ")
        )))
    }

    /// Returns one error that lists all problems, if there are any. In that case, nothing is stored.
    async fn report_problems(
        &self,
        store: &Store,
        parsed: &ParsedRows,
        set: &NamedSet,
    ) -> Result<(), CliError> {
        let mut problems = Vec::new();
        if !parsed.unknown_labels.is_empty() {
            let unknown = parsed.unknown_labels.iter();
            let shown = unknown.map(|(word, lines)| format!("`{word}` ({})", line_list(lines)));
            let labels = set.set.labels.iter();
            let known: Vec<&str> = labels.map(|label| label.slug.as_str()).collect();
            problems.push(format!(
                "the label set has no label {}; known labels: {}, and `none` for none of these",
                join_first(shown, SHOWN_PROBLEMS),
                known.join(", ")
            ));
        }
        if !parsed.unknown_posts.is_empty() {
            let names: Vec<Fullname> = parsed.unknown_posts.keys().cloned().collect();
            let purged = store.purging().count_tombstones(&names).await?;
            let unknown = parsed.unknown_posts.iter();
            let shown = unknown.map(|(post, lines)| format!("{post} ({})", line_list(lines)));
            problems.push(format!(
                "posts that are not in the database ({purged} of them purged): {}",
                join_first(shown, SHOWN_PROBLEMS)
            ));
        }
        if !parsed.contradictions.is_empty() {
            let shown = parsed.contradictions.iter().cloned();
            problems.push(format!(
                "contradictory gold labels by the same annotator, without times: {}",
                join_first(shown, SHOWN_PROBLEMS)
            ));
        }
        if !parsed.future_lines.is_empty() {
            let lines = line_list(&parsed.future_lines);
            problems.push(format!("times in the future ({lines})"));
        }
        if problems.is_empty() {
            return Ok(());
        }
        Err(CliError::Usage(format!(
            "cannot read the gold file `{}`: {}. Nothing was stored: fix the file{}",
            self.file.display(),
            problems.join("; "),
            if parsed.is_faulty() {
                ""
            } else {
                ", or skip these rows with --skip-unknown"
            }
        )))
    }
}

/// Marks the posts of rows as a random sample; returns an error for a comment.
fn mark_as_random(rows: &mut [GoldRow]) -> Result<(), CliError> {
    if let Some(row) = rows.iter().find(|row| row.id.is_comment()) {
        return Err(CliError::Usage(format!(
            "--random: the gold label in line {} is of a comment, and only posts are sampled at random: import gold \
             labels of comments without --random",
            row.line
        )));
    }
    for row in rows {
        if row.chosen != SampleReason::Random {
            row.chosen = SampleReason::Random;
            // With any other source, all posts before this one in topicmill's random order would also count as sampled.
            row.source = GoldSource::Import;
        }
    }
    Ok(())
}

/// Returns the login name, from the environment.
pub(in crate::cli) fn login() -> Option<String> {
    let variables = ["LOGNAME", "USER", "USERNAME"].into_iter();
    let mut names = variables.filter_map(|variable| std::env::var(variable).ok());
    names.find(|name| !name.trim().is_empty())
}

/// Converts the rows of a file. A row without an annotator gets `default_annotator`.
async fn parse_rows(
    store: &Store,
    rows: Vec<GoldRow>,
    set: &NamedSet,
    default_annotator: &str,
    now: Timestamp,
) -> Result<ParsedRows, CliError> {
    let names = distinct(rows.iter().map(|row| &row.id));
    let hashes = store.posts().text_hashes(&names).await?.into_iter();
    let stored: BTreeSet<Fullname> = hashes.map(|(name, _)| name).collect();
    let mut parsed = ParsedRows::default();
    let latest = now.as_datetime() + CLOCK_DIFFERENCE;
    for row in rows {
        if row.answered_at.is_some_and(|at| at.as_datetime() > latest) {
            parsed.future_lines.push(row.line);
        }
        let label = gold::resolve_word(&set.set, &row.label);
        if label.is_none() {
            let lines = parsed.unknown_labels.entry(row.label).or_default();
            lines.push(row.line);
        }
        let is_stored = stored.contains(&row.id);
        if !is_stored {
            let lines = parsed.unknown_posts.entry(row.id.clone()).or_default();
            lines.push(row.line);
        }
        let (Some(label), true) = (label, is_stored) else {
            continue;
        };
        let annotator = row.annotator;
        let answer = GoldAnswer {
            fullname: row.id,
            annotator: annotator.unwrap_or_else(|| default_annotator.to_owned()),
            label: label.map(|label| label.slug.clone()),
            label_set: set.stored,
            chosen: row.chosen,
            source: row.source,
            answered_at: row.answered_at.unwrap_or(now),
            is_dated: row.answered_at.is_some(),
            text_hash: row.text_hash,
            note: row.note,
        };
        parsed.add(answer, row.line);
    }
    Ok(parsed)
}

/// Returns distinct posts, ordered by fullname.
fn distinct<'a>(posts: impl Iterator<Item = &'a Fullname>) -> Vec<Fullname> {
    let posts: BTreeSet<&Fullname> = posts.collect();
    posts.into_iter().cloned().collect()
}

/// Formats line numbers, at most `SHOWN_LINES` of them.
fn line_list(lines: &[u64]) -> String {
    let word = if lines.len() == 1 { "line" } else { "lines" };
    let numbers = join_first(lines.iter().map(u64::to_string), SHOWN_LINES);
    format!("{word} {numbers}")
}

/// Joins the first words, and counts the others.
fn join_first(words: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = words.len().saturating_sub(most);
    let mut shown: Vec<String> = words.take(most).collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(", ")
}

fn printout(saved: &SavedGold, left_out: usize) -> Printout {
    let mut json = json!(saved);
    json["left_out"] = json!(left_out);
    let rows = [
        ("new gold labels", json!(saved.added)),
        ("changed gold labels", json!(saved.changed)),
        ("unchanged gold labels", json!(saved.same)),
        ("rows left out", json!(left_out)),
    ];
    Printout::new(json).with("", key_value_table("what", rows))
}
