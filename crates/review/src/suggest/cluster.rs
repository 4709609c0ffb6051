//! Clusters vectors hierarchically, with average linkage of cosine distances. The dendrogram is cut at the distance
//! with the best silhouette, so the number of clusters need not be known in advance.
//!
//! The input is unit vectors in a reproducible order; the output is cluster means, to which other vectors can be
//! assigned.

use kodama::{Dendrogram, Method, linkage};
use topicmill_score::embedding::dot;

/// Texts closer than this cosine distance are near-duplicates, such as weekly threads, and count once. Among 1,311
/// distinct posts about eleven topics, only one pair in a thousand is closer than 0.45.
const SAME: f32 = 0.1;
/// The range of cut distances that are tried, in hundredths. A smaller distance joins hardly any posts, and a larger
/// one merges topics: a cut at 0.86 separates nine of eleven topics, and a cut at 0.96 merges all of them.
const CUTS: (u8, u8) = (50, 90);
/// The step between cuts, in hundredths.
const STEP: u8 = 2;
/// The cut if none of the tried distances produces two clusters: the best cut for the 1,311 posts.
const DEFAULT_CUT: f32 = 0.8;

/// Cluster means, largest cluster first.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Clusters {
    means: Vec<Vec<f32>>,
    /// The maximum distance between a vector and its cluster.
    pub cut: f32,
}

impl Clusters {
    /// Returns a vector's cluster, if any, and its mean distance to the cluster's members.
    pub fn nearest(&self, vector: &[f32]) -> Option<(usize, f32)> {
        let distances = self.means.iter().map(|mean| 1.0 - dot(mean, vector));
        let (place, distance) = (0..)
            .zip(distances)
            .min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (distance <= self.cut).then_some((place, distance))
    }

    /// Returns the mean of a cluster's vectors.
    pub fn mean(&self, at: usize) -> &[f32] {
        &self.means[at]
    }

    /// Returns the number of clusters.
    pub fn len(&self) -> usize {
        self.means.len()
    }
}

/// The vectors that are not near-duplicates of an earlier vector.
pub(super) struct Distinct {
    /// The positions of these vectors.
    pub places: Vec<usize>,
    /// Distances from each of these vectors to all earlier ones, vector by vector.
    before: Vec<f32>,
}

impl Distinct {
    /// Removes near-duplicates.
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
            // If the loop ended early, the vector is a near-duplicate and its distances are dropped.
            if found.before.len() - at == found.places.len() {
                found.places.push(place);
            } else {
                found.before.truncate(at);
            }
        }
        found
    }

    /// Returns the condensed distance matrix that `kodama` expects.
    fn condensed(&self) -> Vec<f32> {
        let n = self.places.len();
        let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| b * (b - 1) / 2 + a));
        pairs.map(|pair| self.before[pair]).collect()
    }
}

/// Returns clusters of at least `fewest` distinct vectors.
pub(super) fn cluster(vectors: &[Vec<f32>], distinct: Distinct, fewest: usize) -> Clusters {
    let n = distinct.places.len();
    if n < 2 {
        return Clusters::default();
    }
    let mut condensed = distinct.condensed();
    let vectors: Vec<&[f32]> = distinct.places.iter().map(|at| &vectors[*at][..]).collect();
    // Frees one of the two copies of the distances before the dendrogram is built.
    drop(distinct.before);
    let tree = linkage(&mut condensed, n, Method::Average);
    drop(condensed);
    let cuts = (CUTS.0..=CUTS.1).step_by(usize::from(STEP));
    let cuts = cuts.map(|cut| f32::from(cut) / 100.0);
    let mut best: Option<(f32, Sums)> = None;
    for cut in cuts {
        let sums = Sums::of(&vectors, &cut_at(&tree, n, cut), fewest);
        let silhouette = sums.silhouette(&vectors);
        // Ties go to the smaller cut, which produces finer clusters.
        if sums.all.len() > 1 && best.as_ref().is_none_or(|(most, _)| silhouette > *most) {
            best = Some((silhouette, Sums { cut, ..sums }));
        }
    }
    let sums = match best {
        Some((_, sums)) => sums,
        None => Sums {
            cut: DEFAULT_CUT,
            ..Sums::of(&vectors, &cut_at(&tree, n, DEFAULT_CUT), fewest)
        },
    };
    sums.means()
}

/// Cuts the dendrogram at a distance and returns the cluster of each of the `n` vectors.
fn cut_at(tree: &Dendrogram<f32>, n: usize, cut: f32) -> Vec<usize> {
    // Step i creates cluster n + i from two earlier ones.
    let mut part_of: Vec<usize> = (0..n + tree.len()).collect();
    for (made, step) in (n..).zip(tree.steps()) {
        if step.dissimilarity <= cut {
            part_of[step.cluster1] = made;
            part_of[step.cluster2] = made;
        }
    }
    // Work from the root down, so that a parent is resolved before its children.
    for cluster in (0..part_of.len()).rev() {
        part_of[cluster] = part_of[part_of[cluster]];
    }
    part_of.truncate(n);
    part_of
}

/// Clusters, represented by the sums of their vectors.
struct Sums {
    /// (number of vectors, sum of vectors) of each cluster, largest first.
    all: Vec<(f32, Vec<f32>)>,
    /// The cluster of each vector; `None` if the cluster is too small.
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

    /// Returns the sum of the vectors' silhouettes (Rousseeuw 1987), each from -1 to 1, and 0 for vectors outside all
    /// clusters. The sum, unlike the mean, rewards cuts that put more vectors into clusters.
    fn silhouette(&self, vectors: &[&[f32]]) -> f32 {
        let of_vector = |(vector, of): (&&[f32], &Option<usize>)| {
            let own = (*of)?;
            let (mut inside, mut outside) = (0.0, f32::INFINITY);
            for (at, (count, sum)) in self.all.iter().enumerate() {
                let sum = dot(sum, vector);
                if at == own {
                    // Excludes the vector itself.
                    inside = 1.0 - (sum - 1.0) / (count - 1.0);
                } else {
                    outside = outside.min(1.0 - sum / count);
                }
            }
            let greater = inside.max(outside);
            (greater.is_finite() && greater > 0.0).then(|| (outside - inside) / greater)
        };
        vectors.iter().zip(&self.of).filter_map(of_vector).sum()
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

    /// Returns random unit vectors scattered around the axes, with a fixed seed.
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
    fn vectors_around_an_axis_form_a_cluster() {
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
    fn near_duplicates_count_once() {
        let mut vectors = about(2, 12, 0.5);
        // A daily thread, repeated twenty times.
        vectors.extend(about(3, 20, 0.01).into_iter().skip(2).step_by(3));
        assert_eq!(Distinct::of(&vectors).places.len(), 25);
        assert_eq!(found(&vectors, 5).len(), 2);
    }

    #[test]
    fn one_cluster_or_none_can_be_found() {
        assert_eq!(found(&about(1, 12, 0.5), 5).len(), 1);
        assert_eq!(found(&about(1, 3, 0.5), 5).len(), 0);
        assert_eq!(found(&[], 5), Clusters::default());
        assert_eq!(found(&about(1, 1, 0.5), 5), Clusters::default());
    }
}
