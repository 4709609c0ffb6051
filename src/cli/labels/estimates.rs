//! The estimates of `topicmill labels evaluate`: the sampling frame, and the shares of labels, in all and by group.

use serde_json::{Value, json};

use super::super::{CliError, output};
use super::figures::estimate;
use super::groups::add_groups;
use super::side::Side;
use super::{NONE, Printout};
use topicmill_core::Fullname;
use topicmill_review::calibrate::Proportion;
use topicmill_review::evaluate::{Frame, Mix, UNLIKELY, frame_json};
use topicmill_review::join::JoinedGold;
use topicmill_store::{Grouping, Store, Target};

/// Minimum number of random gold posts for estimates of the labels' shares.
const SHARE_POSTS: usize = 30;

/// A random sample, and the posts that it represents.
pub struct Estimates {
    frame: Frame,
    /// The sampled posts that the frame covers.
    pub held: JoinedGold,
    mixes: Vec<Mix>,
}

impl Estimates {
    /// Returns `None` without a target.
    pub async fn find(
        store: &Store,
        target: Option<Target>,
        sample: &JoinedGold,
    ) -> Result<Option<Self>, CliError> {
        let Some(target) = target else {
            return Ok(None);
        };
        let answers = store.gold().answers().await?;
        let posts = sample.posts.iter().map(|post| &post.id);
        let frame = Frame::find(store, target, &answers, posts, true).await?;
        let held = sample.filtered(|post| frame.contains(post));
        let posts: Vec<Fullname> = held.posts.iter().map(|post| post.id.clone()).collect();
        let sampled = frame.count_sample(store, target, &posts).await?;
        let mixes = frame.mixes(&sampled);
        Ok(Some(Self { frame, held, mixes }))
    }

    /// Returns the share of posts whose label is right, and the share of labels that are.
    pub fn accuracy(&self) -> (Proportion, Proportion) {
        self.frame.accuracy(&self.posts(), &self.held.rows[0])
    }

    fn posts(&self) -> Vec<&Fullname> {
        self.held.posts.iter().map(|post| &post.id).collect()
    }

    /// Describes the frame and the sample.
    pub fn json(&self) -> Value {
        let size = self.frame.size().unwrap_or_default();
        frame_json(&size, &self.mixes)
    }

    /// Describes the frame, and says if the sample is hardly random.
    pub fn notes(&self) -> String {
        let mut notes = Vec::new();
        let frame = self.frame.in_words();
        if let Some(frame) = frame.strip_prefix(", of the ") {
            notes.push(format!("The figures are estimates for the {frame}."));
        }
        let size = self.frame.size().filter(|size| size.waves > 1);
        if let Some(size) = size {
            notes.push(format!(
                "Accuracy, precision and label shares are weighted by {} waves, because later posts have fewer or more \
                 answers per post.",
                size.waves
            ));
        }
        let unlikely = self.mixes.iter().filter(|mix| mix.is_unlikely());
        let unlikely: Vec<&str> = unlikely.map(|mix| mix.of).collect();
        if !unlikely.is_empty() {
            notes.push(format!(
                "The sample is hardly random: its mix of {} differs from that of all posts (chi-square test, p < \
                 {UNLIKELY}).",
                unlikely.join(" and ")
            ));
        }
        notes.join(" ")
    }
}

/// Adds the shares of labels by group. Without a random sample, all shares are assigned ones.
pub async fn add_groups_of(
    store: &Store,
    (side, by): (&Side, Grouping),
    estimates: Option<&Estimates>,
    found: &mut Printout,
) -> Result<(), CliError> {
    let Some(target) = side.target() else {
        return Err(CliError::Usage(format!(
            "--by {} counts stored labels, and this label set has none: run `topicmill classify` with it first",
            by.name()
        )));
    };
    let of = (target, &side.set);
    let groups = if let Some(Estimates { frame, held, .. }) = estimates {
        let posts: Vec<Fullname> = held.posts.iter().map(|post| post.id.clone()).collect();
        let sample = (&posts[..], &held.rows[0][..]);
        frame.groups(store, of, by, sample).await?
    } else {
        let frame = Frame::find(store, target, &[], std::iter::empty(), true).await?;
        frame.groups(store, of, by, (&[], &[])).await?
    };
    add_groups(&side.set, by, &groups, found);
    Ok(())
}

/// Adds a table of the labels' shares of all labelled posts: as assigned, and estimated from a random sample.
pub fn add_shares(side: &Side, estimates: Option<&Estimates>, found: &mut Printout) {
    let random = estimates.map_or(0, |estimates| estimates.held.posts.len());
    let Some(estimates) = estimates.filter(|_| random >= SHARE_POSTS) else {
        let note = format!(
            "The estimated shares of labels need {SHARE_POSTS} random gold posts in the database ({random} so far)."
        );
        found.add(&note, output::table([], []));
        return;
    };
    let set = &side.set;
    let shares = estimates
        .frame
        .label_shares(set, &estimates.posts(), &estimates.held.rows[0]);
    let names = set
        .labels
        .iter()
        .map(|label| label.slug.as_str())
        .chain([NONE]);
    let shares: Vec<_> = names.zip(shares).collect();
    let json = shares.iter().map(|(label, (assigned, estimated))| {
        json!({ "label": label, "assigned": assigned, "estimated": estimated })
    });
    found.json["shares"] = json.collect();
    let rows = shares.iter().map(|(label, (assigned, estimated))| {
        json!([label, format!("{assigned:.3}"), estimate(estimated)])
    });
    let table = output::table(["label", "assigned", "estimated, 95 %"], rows);
    let posts = estimates.frame.size().unwrap_or_default().posts;
    let heading = format!(
        "Shares of {posts} labelled posts. Assigned: the share with this label. Estimated: the share whose right label \
         this is, from {random} random gold posts"
    );
    found.add(&heading, table);
}
