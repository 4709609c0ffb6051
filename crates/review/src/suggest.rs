//! Suggests new labels: clusters the stored vectors of posts without a label and describes each cluster with its terms.
//!
//! The input is a target and a model with stored text vectors; the output is clusters with terms and example posts,
//! largest first. No model runs. Equal texts count once. If there are many posts, only a sample is clustered, and the
//! remaining posts are assigned to the nearest cluster. The sample is chosen by text hash, so results are reproducible.
//! Posts that are purged or edited during the run are left out.

mod cluster;
mod terms;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use self::cluster::{Clusters, Distinct};
use self::terms::Text;
use topicmill_core::{Fullname, TextHash};
use topicmill_score::LabelVector;
use topicmill_store::{AbstainReason, Store, StoreError, StoredText, Target, UnlabelledText};

/// The default sample size. The 8 million pairwise distances take 32 MB and a second or two; a topic with 1 % of the
/// posts has about forty posts in the sample.
pub const SAMPLE: usize = 4_000;
/// Posts per page of a query.
const WINDOW: u32 = 4_000;
/// The lower bound of the default minimum cluster size. Clusters of three are often due to chance, and a minimum of 5
/// missed more topics than 4 in a sample of 60 posts.
const MIN_POSTS: u64 = 4;
/// The default minimum cluster size is the number of posts divided by this; smaller topics are hardly worth a label.
const RAREST: u64 = 100;

/// The input of [`suggest`].
#[derive(Debug, Clone, Copy)]
pub struct SuggestOptions<'a> {
    /// The target whose unlabelled posts are clustered.
    pub target: Target,
    /// Key of the model with stored text vectors.
    pub model: i64,
    /// The reason why the posts have no label.
    pub outcome: AbstainReason,
    /// The minimum cluster size in posts; `None` uses [`default_min_posts`].
    pub min_posts: Option<u64>,
    /// Maximum number of example posts per cluster.
    pub titles: usize,
    /// Maximum number of texts to cluster; the remaining texts join the nearest cluster.
    pub sample: usize,
    /// Background topics; the nearest one names a cluster without distinctive terms.
    pub background: Option<TopicVectors<'a>>,
}

/// The vectors of background topics.
#[derive(Debug, Clone, Copy)]
pub struct TopicVectors<'a> {
    /// One vector per topic.
    pub vectors: &'a LabelVector,
    /// The names of the topics, in the same order.
    pub names: &'a [String],
}

impl<'a> TopicVectors<'a> {
    /// Returns the topic nearest to a vector.
    fn nearest(&self, vector: &[f32]) -> Option<&'a str> {
        let cosines = self.vectors.each_cosine(vector)?;
        let named = self.names.iter().zip(cosines);
        let nearest = named.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(nearest.0)
    }
}

/// The result of [`suggest`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Suggestions {
    /// Posts without a label; equal texts count once.
    pub posts: u64,
    /// Posts in the sample that was clustered.
    pub sampled: u64,
    /// The minimum cluster size in posts.
    pub min_posts: u64,
    /// The maximum mean cosine distance between a post and its cluster.
    pub cut: f32,
    /// The clusters, largest first.
    pub clusters: Vec<Suggestion>,
}

/// A cluster and its suggested label.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suggestion {
    /// The suggested label text.
    pub label: String,
    /// Terms that distinguish the cluster's posts from other posts, most distinctive first.
    pub terms: Vec<String>,
    /// The nearest background topic.
    pub background: Option<String>,
    /// Number of posts; equal texts count once.
    pub posts: u64,
    /// Share of all posts without a label.
    pub share: f64,
    /// The posts nearest to the centre of the cluster.
    pub examples: Vec<Example>,
}

/// A post in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Fullname of the post.
    pub fullname: Fullname,
    /// Title of the post.
    pub title: String,
}

impl Suggestions {
    /// Returns the number of posts in clusters.
    pub fn clustered(&self) -> u64 {
        self.clusters.iter().map(|cluster| cluster.posts).sum()
    }
}

/// Returns the default minimum cluster size for a number of posts.
pub fn default_min_posts(posts: u64) -> u64 {
    MIN_POSTS.max(posts.div_ceil(RAREST))
}

/// Clusters the posts without a label. `stop` ends reading early; `progress` is called with the number of posts in each
/// page.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn suggest(
    store: &Store,
    question: &SuggestOptions<'_>,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Send + Sync),
) -> Result<Suggestions, StoreError> {
    let mut sample = Sample::new(question.sample);
    each_page(store, question, stop, progress, &mut |text| {
        sample.add(text);
    })
    .await?;
    let (texts, posts) = sample.texts(store).await?;
    let sampled = texts.len() as u64;
    let min_posts = question
        .min_posts
        .unwrap_or_else(|| default_min_posts(posts))
        .max(2);
    let clusters = ClusteredSample::new(texts, min_texts_in_sample(min_posts, sampled, posts));
    let mut counts = clusters.counts();
    if sampled < posts && clusters.len() > 0 {
        // The remaining posts are read a second time, because the vectors of a million posts do not fit in memory.
        let mut seen: HashSet<TextHash> = clusters.texts();
        let mut rest = |text: UnlabelledText| {
            if seen.insert(text.text_hash)
                && let Some((at, _)) = clusters.nearest(&text.vector.numbers())
            {
                counts[at] += 1;
            }
        };
        // The first pass has already reported progress.
        each_page(store, question, stop, &|_| {}, &mut rest).await?;
    }
    Ok(Suggestions {
        posts,
        sampled,
        min_posts,
        cut: clusters.cut(),
        clusters: clusters.suggestions(question, &counts, min_posts, posts),
    })
}

/// Scales the minimum cluster size from all posts to the sample.
fn min_texts_in_sample(min_posts: u64, sampled: u64, posts: u64) -> usize {
    let of_sample = min_posts.saturating_mul(sampled).div_ceil(posts.max(1));
    // In a sample, a few texts may be similar by chance.
    let floor = if sampled < posts { MIN_POSTS } else { 2 };
    usize::try_from(of_sample.max(floor)).unwrap_or(usize::MAX)
}

/// Reads all posts without a label, page by page.
async fn each_page(
    store: &Store,
    question: &SuggestOptions<'_>,
    stop: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64) + Send + Sync),
    take: &mut (dyn FnMut(UnlabelledText) + Send),
) -> Result<(), StoreError> {
    let mut after = String::new();
    while !stop() {
        let page = store
            .labels()
            .abstained_texts(
                question.target,
                question.outcome,
                question.model,
                &after,
                WINDOW,
            )
            .await?;
        let Some(last) = page.last() else { break };
        after = last.fullname.to_string();
        progress(page.len() as u64);
        page.into_iter().for_each(&mut *take);
    }
    Ok(())
}

/// Collects the texts with the smallest hashes and counts all distinct texts.
struct Sample {
    most: usize,
    seen: HashSet<TextHash>,
    kept: BTreeMap<TextHash, UnlabelledText>,
}

impl Sample {
    fn new(most: usize) -> Self {
        Self {
            most,
            seen: HashSet::new(),
            kept: BTreeMap::new(),
        }
    }

    fn add(&mut self, text: UnlabelledText) {
        if !self.seen.insert(text.text_hash) {
            return;
        }
        self.kept.insert(text.text_hash, text);
        if self.kept.len() > self.most {
            self.kept.pop_last();
        }
    }

    /// Reads the titles and bodies and returns them with the number of distinct texts. Posts that were purged or edited
    /// in the meantime are left out of both.
    async fn texts(self, store: &Store) -> Result<(Vec<Post>, u64), StoreError> {
        let names: Vec<&Fullname> = self.kept.values().map(|text| &text.fullname).collect();
        let words = store.posts().post_texts(&names).await?;
        let mut words: HashMap<Fullname, StoredText> = words
            .into_iter()
            .map(|text| (text.fullname.clone(), text))
            .collect();
        let lost = self.kept.len();
        let post = |text: UnlabelledText| {
            let words = words.remove(&text.fullname)?;
            (words.text_hash == text.text_hash).then(|| Post {
                vector: text.vector.numbers(),
                words,
            })
        };
        let texts: Vec<Post> = self.kept.into_values().filter_map(post).collect();
        let lost = lost - texts.len();
        Ok((texts, (self.seen.len() - lost) as u64))
    }
}

/// A post in the sample.
struct Post {
    vector: Vec<f32>,
    words: StoredText,
}

/// The sample and its clusters.
struct ClusteredSample {
    posts: Vec<Post>,
    clusters: Clusters,
    /// For each post, its cluster and its distance to the cluster; `None` if it is in no cluster.
    assignments: Vec<Option<(usize, f32)>>,
    /// Positions of the posts that are not near-duplicates of an earlier post.
    distinct: Vec<usize>,
}

impl ClusteredSample {
    fn new(mut posts: Vec<Post>, fewest: usize) -> Self {
        // Vectors of a different length come from a different version of the model and cannot be compared.
        let dimensions = posts.first().map_or(0, |post| post.vector.len());
        posts.retain(|post| post.vector.len() == dimensions);
        let vectors: Vec<Vec<f32>> = posts
            .iter_mut()
            .map(|post| std::mem::take(&mut post.vector))
            .collect();
        let distinct = Distinct::of(&vectors);
        let places = distinct.places.clone();
        let clusters = cluster::cluster(&vectors, distinct, fewest);
        let assignments = vectors
            .iter()
            .map(|vector| clusters.nearest(vector))
            .collect();
        Self {
            posts,
            clusters,
            assignments,
            distinct: places,
        }
    }

    fn len(&self) -> usize {
        self.clusters.len()
    }

    fn cut(&self) -> f32 {
        self.clusters.cut
    }

    fn nearest(&self, vector: &[f32]) -> Option<(usize, f32)> {
        self.clusters.nearest(vector)
    }

    fn texts(&self) -> HashSet<TextHash> {
        self.posts.iter().map(|post| post.words.text_hash).collect()
    }

    /// Counts the posts in each cluster.
    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.len()];
        for (at, _) in self.assignments.iter().flatten() {
            counts[*at] += 1;
        }
        counts
    }

    /// Names the clusters that have enough posts.
    fn suggestions(
        &self,
        question: &SuggestOptions<'_>,
        counts: &[u64],
        min_posts: u64,
        all: u64,
    ) -> Vec<Suggestion> {
        // Posts outside all clusters form a separate class, which lowers the weight of common terms.
        let mut classes: Vec<Vec<(f32, &Post)>> = vec![Vec::new(); self.len() + 1];
        for place in &self.distinct {
            let (at, distance) = self.assignments[*place].unwrap_or((self.len(), 0.0));
            classes[at].push((distance, &self.posts[*place]));
        }
        let words: Vec<Vec<Text>> = classes
            .iter()
            .map(|class| class.iter().map(|(_, post)| post.text()).collect())
            .collect();
        let found = terms::terms(&words);
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.retain(|at| counts[*at] >= min_posts && !found[*at].is_empty());
        order.sort_by_key(|at| (Reverse(counts[*at]), *at));
        let mut taken = HashSet::new();
        let suggestion = |at: usize| {
            let terms: Vec<String> = found[at].iter().map(|term| term.words.clone()).collect();
            let named = question.background;
            let near = named.and_then(|named| named.nearest(self.clusters.mean(at)));
            let distinctive = terms::label(&found[at], classes[at].len());
            Suggestion {
                label: label(&terms, near, distinctive, &mut taken),
                terms,
                background: near.map(str::to_owned),
                posts: counts[at],
                share: share(counts[at], all),
                examples: examples(classes[at].clone(), question.titles),
            }
        };
        order.into_iter().map(suggestion).collect()
    }
}

/// Chooses a label text that is not taken yet. The choices, best first, are the distinctive terms, the nearest
/// background topic, that topic with the best term, the two best terms, and all terms.
fn label(
    terms: &[String],
    near: Option<&str>,
    distinctive: Option<String>,
    taken: &mut HashSet<String>,
) -> String {
    let few = terms.iter().take(2).cloned().collect::<Vec<String>>();
    let both = |near: &str| format!("{near}: {}", few[0]);
    let choices = [
        distinctive,
        near.map(str::to_owned),
        near.map(both),
        Some(few.join(" and ")),
    ];
    let mut choices = choices.into_iter().flatten();
    let chosen = choices.find(|words| !taken.contains(&words.to_lowercase()));
    let chosen = chosen.unwrap_or_else(|| terms.join(", "));
    taken.insert(chosen.to_lowercase());
    chosen
}

impl Post {
    fn text(&self) -> Text<'_> {
        let StoredText { title, body, .. } = &self.words;
        Text { title, body }
    }
}

/// Returns the posts nearest to the centre, without repeated titles.
fn examples(mut posts: Vec<(f32, &Post)>, most: usize) -> Vec<Example> {
    posts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut found: Vec<Example> = Vec::new();
    for (_, post) in posts {
        let StoredText {
            fullname, title, ..
        } = &post.words;
        if found.len() < most && found.iter().all(|one| one.title != *title) {
            found.push(Example {
                fullname: fullname.clone(),
                title: title.clone(),
            });
        }
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "a share for display")]
fn share(posts: u64, all: u64) -> f64 {
    posts as f64 / all.max(1) as f64
}
