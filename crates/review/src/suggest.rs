//! What posts without a label are about: clusters of their stored vectors, with words for each.
//!
//! In go a target and the model whose vectors count; out come clusters with terms and a few posts, the largest first. No
//! model runs. Equal texts count once. Of many posts a sample is clustered, by the hash of the text, so that it is the same
//! each time; the others then go to the cluster that they are near. A post that is purged or edited meanwhile is left out.

mod cluster;
mod terms;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use self::cluster::{Clusters, Distinct};
use self::terms::Text;
use topicmill_core::{Fullname, TextHash};
use topicmill_score::LabelVector;
use topicmill_store::{NoLabel, Store, StoreError, StoredText, Target, UnlabelledText};

/// Texts that are clustered: each pair of them has a distance, 8 million of them 32 MB, and reading order takes a second or
/// two. A topic of one post in a hundred has forty of them.
pub const SAMPLE: usize = 4_000;
/// Posts that are read at a time.
const WINDOW: u32 = 4_000;
/// The fewest posts of a cluster if nobody says: one of three is as often chance (with 60 of 1,311 posts about eleven topics,
/// 4 posts at least found 7 topics, 5 found 5).
const FEWEST: u64 = 4;
/// And of many posts this share: one in so many. What is rarer is hardly worth a label.
const RAREST: u64 = 100;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct SuggestOptions<'a> {
    /// Whose labels.
    pub target: Target,
    /// Key of the model whose vectors count.
    pub model: i64,
    /// Which posts without a label.
    pub outcome: NoLabel,
    /// The fewest posts of a cluster; `None` chooses by how many posts there are.
    pub min_posts: Option<u64>,
    /// Most titles of a cluster.
    pub titles: usize,
    /// Most texts that are clustered; the others join them.
    pub sample: usize,
    /// Ordinary topics, which name a cluster where its words do not.
    pub background: Option<TopicVectors<'a>>,
}

/// The vectors of a background's topics.
#[derive(Debug, Clone, Copy)]
pub struct TopicVectors<'a> {
    /// All of them.
    pub vectors: &'a LabelVector,
    /// What they are called, in the same order.
    pub names: &'a [String],
}

impl<'a> TopicVectors<'a> {
    /// The topic that a vector is nearest to.
    fn nearest(&self, vector: &[f32]) -> Option<&'a str> {
        let cosines = self.vectors.each_cosine(vector)?;
        let named = self.names.iter().zip(cosines);
        let nearest = named.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        Some(nearest.0)
    }
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Suggestions {
    /// Posts that were looked at, those of equal texts once.
    pub posts: u64,
    /// How many of them the clusters were made of.
    pub sampled: u64,
    /// The fewest posts that a cluster may have.
    pub min_posts: u64,
    /// The mean cosine distance up to which a post belongs to a cluster.
    pub cut: f32,
    /// The largest first.
    pub clusters: Vec<Suggestion>,
}

/// A cluster, with words for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suggestion {
    /// Words for a label.
    pub label: String,
    /// What is said in its posts and not in the others, the most telling first.
    pub terms: Vec<String>,
    /// The topic of the background that it is nearest to.
    pub background: Option<String>,
    /// Posts, those of equal texts once.
    pub posts: u64,
    /// Of all that were looked at.
    pub share: f64,
    /// Those in the middle of it.
    pub examples: Vec<Example>,
}

/// A post of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// Its key.
    pub fullname: Fullname,
    /// Title.
    pub title: String,
}

impl Suggestions {
    /// Posts that are in a cluster.
    pub fn clustered(&self) -> u64 {
        self.clusters.iter().map(|cluster| cluster.posts).sum()
    }
}

/// The fewest posts of a cluster among so many.
pub fn default_min_posts(posts: u64) -> u64 {
    FEWEST.max(posts.div_ceil(RAREST))
}

/// Looks at the posts; `progress` hears how many more were read.
///
/// # Errors
/// Those of the store.
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
    let clusters = Looked::at(texts, least(min_posts, sampled, posts));
    let mut counts = clusters.counts();
    if sampled < posts && clusters.len() > 0 {
        // The sample is counted already. The others are read again, because the vectors of a million posts would fill
        // the memory.
        let mut seen: HashSet<TextHash> = clusters.texts();
        let mut rest = |text: UnlabelledText| {
            if seen.insert(text.text_hash)
                && let Some((at, _)) = clusters.nearest(&text.vector.numbers())
            {
                counts[at] += 1;
            }
        };
        // They were heard of before.
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

/// The fewest texts of a sample where that many of all are asked for.
fn least(min_posts: u64, sampled: u64, posts: u64) -> usize {
    let of_sample = min_posts.saturating_mul(sampled).div_ceil(posts.max(1));
    // In a sample, a few texts may be alike by chance, however rare a cluster may be among all posts.
    let floor = if sampled < posts { FEWEST } else { 2 };
    usize::try_from(of_sample.max(floor)).unwrap_or(usize::MAX)
}

/// Reads all posts of a question, in pages.
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
            .without_label(
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

/// The texts with the least hashes, and how many there are in all.
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

    /// With their words. What was purged or edited since it was read is left out.
    async fn texts(self, store: &Store) -> Result<(Vec<Post>, u64), StoreError> {
        let names: Vec<&Fullname> = self.kept.values().map(|text| &text.fullname).collect();
        let words = store.posts().texts_of(&names).await?;
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

/// A post of the sample.
struct Post {
    vector: Vec<f32>,
    words: StoredText,
}

/// The sample and its clusters.
struct Looked {
    posts: Vec<Post>,
    clusters: Clusters,
    /// For each post its cluster and how near it is.
    of: Vec<Option<(usize, f32)>>,
    /// The places of those that say something of their own.
    distinct: Vec<usize>,
}

impl Looked {
    fn at(mut posts: Vec<Post>, fewest: usize) -> Self {
        // A vector of another length is none of this model.
        let dimensions = posts.first().map_or(0, |post| post.vector.len());
        posts.retain(|post| post.vector.len() == dimensions);
        let vectors: Vec<Vec<f32>> = posts
            .iter_mut()
            .map(|post| std::mem::take(&mut post.vector))
            .collect();
        let distinct = Distinct::of(&vectors);
        let places = distinct.places.clone();
        let clusters = cluster::cluster(&vectors, distinct, fewest);
        let of = vectors
            .iter()
            .map(|vector| clusters.nearest(vector))
            .collect();
        Self {
            posts,
            clusters,
            of,
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

    /// Posts of each cluster.
    fn counts(&self) -> Vec<u64> {
        let mut counts = vec![0; self.len()];
        for (at, _) in self.of.iter().flatten() {
            counts[*at] += 1;
        }
        counts
    }

    /// The clusters that have enough posts, with words for each.
    fn suggestions(
        &self,
        question: &SuggestOptions<'_>,
        counts: &[u64],
        min_posts: u64,
        all: u64,
    ) -> Vec<Suggestion> {
        // What is in no cluster is a class, too: its words are nothing special.
        let mut classes: Vec<Vec<(f32, &Post)>> = vec![Vec::new(); self.len() + 1];
        for place in &self.distinct {
            let (at, distance) = self.of[*place].unwrap_or((self.len(), 0.0));
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
            let telling = terms::label(&found[at], classes[at].len());
            Suggestion {
                label: label(&terms, near, telling, &mut taken),
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

/// Words for a label, each once: telling ones; else the nearest topic of the background; else whatever is said most.
fn label(
    terms: &[String],
    near: Option<&str>,
    telling: Option<String>,
    taken: &mut HashSet<String>,
) -> String {
    let few = terms.iter().take(2).cloned().collect::<Vec<String>>();
    let both = |near: &str| format!("{near}: {}", few[0]);
    let choices = [
        telling,
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

/// Those in the middle, each title once.
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

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn share(posts: u64, all: u64) -> f64 {
    posts as f64 / all.max(1) as f64
}
