//! Resolves the words in gold rows to labels in one or more label sets and reports unknown and contradictory rows.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{GoldError, GoldPost, GoldRow, ResolvedGold, is_out_of_scope, place};
use topicmill_core::{Fullname, Label, LabelSet, Mode, counted};

/// Maximum number of conflicts that an error lists.
const EXAMPLES: usize = 5;
/// Maximum number of unknown labels that an error lists.
const NAMED: usize = 20;
/// Minimum Jaro-Winkler similarity between an unknown word and a label suggested for it.
const MIN_SIMILARITY: f64 = 0.8;

/// Resolves gold rows to labels in one or more label sets. A word that is in only some of the sets counts as out of
/// scope in the other sets. A word that is in no set is rejected, or counts as out of scope if `others_out_of_scope` is
/// true.
///
/// # Errors
/// Returns [`GoldError`] if there are no rows, a word is unknown, or rows contradict each other.
pub fn resolve(
    rows: Vec<GoldRow>,
    sets: &[&LabelSet],
    others_out_of_scope: bool,
) -> Result<ResolvedGold, GoldError> {
    if rows.is_empty() {
        return Err(GoldError::Empty);
    }
    let mut gold = ResolvedGold::default();
    let mut meanings: HashMap<String, Option<Vec<Option<usize>>>> = HashMap::new();
    for row in &rows {
        let meaning = meanings
            .entry(row.label.clone())
            .or_insert_with(|| meaning(sets, &row.label));
        if meaning.is_none() {
            *gold.unknown_labels.entry(row.label.clone()).or_default() += 1;
        }
    }
    if !gold.unknown_labels.is_empty() && !others_out_of_scope {
        return Err(unknown(&gold.unknown_labels, sets));
    }
    let nothing = vec![None; sets.len()];
    // A post may have several labels only if all sets are in multi mode.
    let several = sets.iter().all(|set| set.mode == Mode::Multi);
    let mut posts: BTreeMap<Fullname, GoldPost> = BTreeMap::new();
    let mut conflicts: Vec<String> = Vec::new();
    for row in rows {
        let meaning = meanings[&row.label].as_ref().unwrap_or(&nothing);
        match posts.get_mut(&row.id) {
            None => {
                posts.insert(row.id.clone(), new_post(row, meaning));
            }
            Some(post) if row.is_tied => {
                post.ties.push(places(meaning));
                post.words.push(row.label);
            }
            Some(post) if is_duplicate(post, meaning) => gold.duplicates += 1,
            Some(post) if several && adds_to(post, meaning) => {
                for (known, place) in post.right.iter_mut().zip(meaning) {
                    known.extend(place.filter(|place| !known.contains(place)));
                }
                post.words.push(row.label);
            }
            Some(post) => conflicts.push(conflict(post, &row)),
        }
    }
    if !conflicts.is_empty() {
        let contradict = match conflicts.len() {
            1 => "1 row contradicts".to_owned(),
            rows => format!("{rows} rows contradict"),
        };
        return Err(GoldError::Labels(format!(
            "{contradict} an earlier row of the same post: {}; keep one row per post",
            conflicts[..conflicts.len().min(EXAMPLES)].join("; ")
        )));
    }
    gold.posts = posts.into_values().collect();
    Ok(gold)
}

fn new_post(row: GoldRow, meaning: &[Option<usize>]) -> GoldPost {
    GoldPost {
        right: places(meaning),
        ties: Vec::new(),
        id: row.id,
        line: row.line,
        words: vec![row.label],
    }
}

/// Returns the positions that a word stands for, one list per label set.
fn places(meaning: &[Option<usize>]) -> Vec<Vec<usize>> {
    let lists = meaning.iter().map(|place| place.iter().copied().collect());
    lists.collect()
}

/// Returns true if a row repeats a label of earlier rows.
fn is_duplicate(post: &GoldPost, meaning: &[Option<usize>]) -> bool {
    let mut places = post.right.iter().zip(meaning);
    places.all(|(known, place)| match place {
        Some(place) => known.contains(place),
        None => known.is_empty(),
    })
}

/// Returns true if a row adds a label to an in-scope post.
fn adds_to(post: &GoldPost, meaning: &[Option<usize>]) -> bool {
    let mut places = post.right.iter().zip(meaning);
    places.all(|(known, place)| place.is_some() && !known.is_empty())
}

fn conflict(post: &GoldPost, row: &GoldRow) -> String {
    format!(
        "`{}` is {} in line {}, but {} in line {}",
        row.id,
        quoted(&post.words[0]),
        post.line,
        quoted(&row.label),
        row.line
    )
}

/// Resolves a word in each set; `None` if the word is unknown.
fn meaning(sets: &[&LabelSet], word: &str) -> Option<Vec<Option<usize>>> {
    let places: Vec<Option<usize>> = sets.iter().map(|set| place(set, word)).collect();
    let known = places.iter().any(Option::is_some) || is_out_of_scope(word);
    known.then_some(places)
}

fn quoted(word: &str) -> String {
    match word {
        "" => "none of these".to_owned(),
        word => format!("`{word}`"),
    }
}

/// Returns the error for unknown words, given with their row counts.
fn unknown(unknown: &BTreeMap<String, usize>, sets: &[&LabelSet]) -> GoldError {
    let labels = || sets.iter().flat_map(|set| &set.labels);
    let mut seen = HashSet::new();
    let known = labels().map(|label| label.slug.as_str());
    let known: Vec<&str> = known.filter(|slug| seen.insert(*slug)).collect();
    let nearest = |word: &str| {
        let word = word.to_lowercase();
        let similarity = |other: &str| strsim::jaro_winkler(&word, &other.to_lowercase());
        let of_label = |label: &Label| similarity(&label.slug).max(similarity(&label.label));
        let similar = labels().map(|label| (of_label(label), &label.slug));
        let similar = similar.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
        let nearest = similar.max_by(|(a, _), (b, _)| a.total_cmp(b));
        nearest.map(|(_, slug)| slug)
    };
    let mut words: Vec<(&String, &usize)> = unknown.iter().collect();
    words.sort_by_key(|(_, rows)| std::cmp::Reverse(**rows));
    let mut listed: Vec<String> = words
        .iter()
        .take(NAMED)
        .map(|(word, rows)| {
            let rows = counted(**rows as u64, "row");
            match nearest(word) {
                Some(slug) => format!("`{word}` ({rows}; did you mean `{slug}`?)"),
                None => format!("`{word}` ({rows})"),
            }
        })
        .collect();
    if words.len() > NAMED {
        listed.push(format!("and {} more", words.len() - NAMED));
    }
    let names: Vec<String> = sets.iter().map(|set| format!("`{}`", set.name)).collect();
    GoldError::Labels(format!(
        "the label set {} has no label {}; correct them, name a different label set with --label-set, or count \
         their posts as out of scope with --others-out-of-scope; the labels are {}",
        names.join(" or "),
        listed.join(", "),
        known.join(", ")
    ))
}
