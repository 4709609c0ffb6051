//! Clusters of vectors without a number of clusters given beforehand: average linkage of cosine distances, cut where the
//! clusters stand apart best.
//!
//! In go vectors of length 1, in an order that does not depend on when they were stored; out come centres that another
//! vector can be held against. The same vectors give the same clusters.

use kodama::{Dendrogram, Method, linkage};
use topicmill_score::embedded::dot;

/// Texts nearer than this say the same in nearly the same words, as threads of every week do: they count once, for a cluster
/// of them is no topic. Of 1,311 different posts about eleven topics, one pair in a thousand is nearer than 0.45.
const SAME: f32 = 0.1;
/// The distances that are tried as cuts: under the first hardly two posts are one cluster, above the last topics run
/// together (of eleven topics that were given, 0.86 left nine and 0.96 one).
const CUTS: (u8, u8) = (50, 90);
/// From one cut to the next, in hundredths.
const STEP: u8 = 2;
/// The cut where none leaves two clusters: the best one for those 1,311 posts.
const MIDDLE: f32 = 0.8;

/// Clusters by the means of their vectors, the largest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Clusters {
    means: Vec<Vec<f32>>,
    /// The distance up to which a vector belongs to a cluster.
    pub cut: f32,
}

impl Clusters {
    /// The cluster that a vector belongs to, with its mean distance from those in it.
    pub fn nearest(&self, vector: &[f32]) -> Option<(usize, f32)> {
        let distances = self.means.iter().map(|mean| 1.0 - dot(mean, vector));
        let (place, distance) = (0..)
            .zip(distances)
            .min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (distance <= self.cut).then_some((place, distance))
    }

    /// The mean of a cluster's vectors.
    pub fn mean(&self, at: usize) -> &[f32] {
        &self.means[at]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.means.len()
    }
}

/// Those of some vectors that are not nearly the same as one before them.
pub(super) struct Distinct {
    /// Their places.
    pub places: Vec<usize>,
    /// How far each is from each one before it.
    before: Vec<f32>,
}

impl Distinct {
    /// Looks at at most 65,535 vectors.
    pub fn of(vectors: &[Vec<f32>]) -> Self {
        let mut found = Self {
            places: Vec::new(),
            before: Vec::new(),
        };
        for (place, vector) in vectors.iter().enumerate() {
            let at = found.before.len();
            for earlier in &found.places {
                let distance = (1.0 - dot(&vectors[*earlier], vector)).max(0.0);
                if distance < SAME {
                    break;
                }
                found.before.push(distance);
            }
            // All earlier ones were far enough away; otherwise the loop broke off, and what it noted is taken back.
            if found.before.len() - at == found.places.len() {
                found.places.push(place);
            } else {
                found.before.truncate(at);
            }
        }
        found
    }

    /// The distances as `kodama` reads them: of the first from all after it, of the second, and so on.
    fn condensed(&self) -> Vec<f32> {
        let n = self.places.len();
        let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| b * (b - 1) / 2 + a));
        pairs.map(|pair| self.before[pair]).collect()
    }
}

/// Clusters of at least `fewest` distinct vectors.
pub(super) fn cluster(vectors: &[Vec<f32>], distinct: Distinct, fewest: usize) -> Clusters {
    let n = distinct.places.len();
    if n < 2 {
        return Clusters::default();
    }
    let mut condensed = distinct.condensed();
    let vectors: Vec<&[f32]> = distinct.places.iter().map(|at| &vectors[*at][..]).collect();
    // Two copies of all distances would be in memory while the tree is made.
    drop(distinct.before);
    let tree = linkage(&mut condensed, n, Method::Average);
    drop(condensed);
    let cuts = (CUTS.0..=CUTS.1).step_by(usize::from(STEP));
    let cuts = cuts.map(|cut| f32::from(cut) / 100.0);
    let mut best: Option<(f32, Sums)> = None;
    for cut in cuts {
        let sums = Sums::of(&vectors, &cut_at(&tree, n, cut), fewest);
        let apart = sums.apart(&vectors);
        // The first of the best: the finer clusters.
        if sums.all.len() > 1 && best.as_ref().is_none_or(|(most, _)| apart > *most) {
            best = Some((apart, Sums { cut, ..sums }));
        }
    }
    let sums = match best {
        Some((_, sums)) => sums,
        None => Sums {
            cut: MIDDLE,
            ..Sums::of(&vectors, &cut_at(&tree, n, MIDDLE), fewest)
        },
    };
    sums.means()
}

/// The cluster of each of `n` vectors where clusters further apart than `cut` are not joined.
fn cut_at(tree: &Dendrogram<f32>, n: usize, cut: f32) -> Vec<usize> {
    // A step makes the cluster n, the next one n + 1; each belongs to the one that it becomes part of.
    let mut part_of: Vec<usize> = (0..n + tree.len()).collect();
    for (made, step) in (n..).zip(tree.steps()) {
        if step.dissimilarity <= cut {
            part_of[step.cluster1] = made;
            part_of[step.cluster2] = made;
        }
    }
    // From the end, so that what a cluster is part of is settled before it.
    for cluster in (0..part_of.len()).rev() {
        part_of[cluster] = part_of[part_of[cluster]];
    }
    part_of.truncate(n);
    part_of
}

/// Clusters as the sums of their vectors.
struct Sums {
    /// Each with how many vectors it is of, the largest first.
    all: Vec<(f32, Vec<f32>)>,
    /// For each vector the place of its cluster, where that is large enough.
    of: Vec<Option<usize>>,
    cut: f32,
}

impl Sums {
    fn of(vectors: &[&[f32]], clusters: &[usize], fewest: usize) -> Self {
        let greatest = clusters.iter().max().map_or(0, |most| most + 1);
        let mut sizes = vec![0usize; greatest];
        for cluster in clusters {
            sizes[*cluster] += 1;
        }
        let large = (0..greatest).filter(|cluster| sizes[*cluster] >= fewest.max(2));
        let mut large: Vec<usize> = large.collect();
        large.sort_by_key(|cluster| (std::cmp::Reverse(sizes[*cluster]), *cluster));
        let mut place = vec![None; greatest];
        for (at, cluster) in large.iter().enumerate() {
            place[*cluster] = Some(at);
        }
        let of: Vec<Option<usize>> = clusters.iter().map(|cluster| place[*cluster]).collect();
        let dimensions = vectors.first().map_or(0, |vector| vector.len());
        let mut all = vec![(0.0, vec![0.0; dimensions]); large.len()];
        for (vector, at) in vectors.iter().zip(&of) {
            let Some(at) = at else { continue };
            let (count, sum) = &mut all[*at];
            *count += 1.0;
            sum.iter_mut()
                .zip(*vector)
                .for_each(|(sum, number)| *sum += number);
        }
        Self { all, of, cut: 0.0 }
    }

    /// The sum of the vectors' silhouettes (Rousseeuw 1987): how much nearer each is to its own cluster than to the next
    /// one, from -1 to 1, and 0 where it is in none. More clusters and more vectors in them make it more, until clusters
    /// touch.
    fn apart(&self, vectors: &[&[f32]]) -> f32 {
        let silhouette = |(vector, of): (&&[f32], &Option<usize>)| {
            let own = (*of)?;
            let (mut inside, mut outside) = (0.0, f32::INFINITY);
            for (at, (count, sum)) in self.all.iter().enumerate() {
                let sum = dot(sum, vector);
                if at == own {
                    // Without the vector itself.
                    inside = 1.0 - (sum - 1.0) / (count - 1.0);
                } else {
                    outside = outside.min(1.0 - sum / count);
                }
            }
            let greater = inside.max(outside);
            (greater.is_finite() && greater > 0.0).then(|| (outside - inside) / greater)
        };
        vectors.iter().zip(&self.of).filter_map(silhouette).sum()
    }

    fn means(self) -> Clusters {
        let mean = |(count, mut sum): (f32, Vec<f32>)| {
            for number in &mut sum {
                *number /= count;
            }
            sum
        };
        Clusters {
            means: self.all.into_iter().map(mean).collect(),
            cut: self.cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors about some axes, a little off them, by a generator that is the same each time.
    fn about(axes: usize, each: usize, off: f32) -> Vec<Vec<f32>> {
        let mut random = fastrand::Rng::with_seed(5);
        let one = |axis: usize, random: &mut fastrand::Rng| {
            let mut vector: Vec<f32> = (0..32).map(|_| off * (random.f32() - 0.5)).collect();
            vector[axis] += 1.0;
            let length = dot(&vector, &vector).sqrt();
            vector.iter().map(|number| number / length).collect()
        };
        (0..axes * each)
            .map(|i| one(i % axes, &mut random))
            .collect()
    }

    fn found(vectors: &[Vec<f32>], fewest: usize) -> Clusters {
        cluster(vectors, Distinct::of(vectors), fewest)
    }

    #[test]
    fn each_axis_is_a_cluster_and_the_vectors_about_it_belong_to_it() {
        let vectors = about(5, 12, 0.5);
        let clusters = found(&vectors, 5);
        assert_eq!(clusters.len(), 5);
        let of: Vec<usize> = vectors
            .iter()
            .map(|vector| clusters.nearest(vector).unwrap().0)
            .collect();
        for (i, cluster) in of.iter().enumerate() {
            assert_eq!(*cluster, of[i % 5], "{i}");
        }
        let mut firsts = of[..5].to_vec();
        firsts.sort_unstable();
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
        let mut elsewhere = vec![0.0; 32];
        elsewhere[20] = 1.0;
        assert_eq!(clusters.nearest(&elsewhere), None);
    }

    #[test]
    fn what_is_said_in_the_same_words_counts_once() {
        let mut vectors = about(2, 12, 0.5);
        // A thread of every day, twenty times.
        vectors.extend(about(3, 20, 0.01).into_iter().skip(2).step_by(3));
        assert_eq!(Distinct::of(&vectors).places.len(), 25);
        assert_eq!(found(&vectors, 5).len(), 2);
    }

    #[test]
    fn one_cluster_and_none_are_clusters_too() {
        assert_eq!(found(&about(1, 12, 0.5), 5).len(), 1);
        assert_eq!(found(&about(1, 3, 0.5), 5).len(), 0);
        assert_eq!(found(&[], 5), Clusters::default());
        assert_eq!(found(&about(1, 1, 0.5), 5), Clusters::default());
    }
}
