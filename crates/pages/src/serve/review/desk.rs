//! Whom is asked about which post, and what they say. Here is the one connection of the server that writes, and only to
//! the table `gold`.
//!
//! Several people may answer at once, each under a name: a post is in one person's hands for some minutes, and others are
//! asked about other posts as long as there are any. What is stored outlives the server; who has which post in hand, and
//! what was skipped, does not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Mutex, MutexGuard};

use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, GoldSource, SampleReason};
use topicmill_review::calibrate::Proportion;
use topicmill_review::evaluate::evaluate;
use topicmill_review::gold::{self, Consensus};
use topicmill_review::join::{self, Labelling};
use topicmill_review::sampling;
use topicmill_score::LabelSet;
use topicmill_store::{GoldAnswer, ReviewPost, Store, StoreError, Target};

/// A person who has not answered for so long may have gone; others are asked then.
const IN_HAND: Duration = Duration::from_mins(10);
/// Close calls that are read at once: to find the closest of a million posts takes a second, and to answer so many an hour.
const WINDOW: u32 = 500;

/// Where questions come from and answers go to.
pub struct Desk {
    store: Store,
    pub clock: SharedClock,
    random_share: f64,
    asked: Mutex<Asked>,
}

/// What the server remembers between questions.
#[derive(Default)]
struct Asked {
    people: HashMap<String, Person>,
    /// The closest calls that nobody has answered, as of some time ago, under this target.
    closest: VecDeque<Fullname>,
    target: Option<Target>,
}

/// A person who answers.
#[derive(Default)]
struct Person {
    /// Questions that were answered.
    answers: u64,
    in_hand: Option<InHand>,
    skipped: HashSet<Fullname>,
    /// What was answered since the server started, the latest last.
    said: Vec<Fullname>,
}

#[derive(Clone)]
struct InHand {
    post: Fullname,
    chosen: SampleReason,
    since: DateTime<Utc>,
}

/// What there is to do for a person.
pub enum NextPost {
    /// This post.
    Ask(Box<ReviewPost>, SampleReason),
    /// Nothing but what was skipped: so many posts.
    Skipped(usize),
    /// Nothing: everything has an answer.
    Done,
}

pub struct ReviewProgress {
    /// Posts on which people agree.
    pub posts: usize,
    /// Posts on which they do not.
    pub disagreements: usize,
    /// Right outcomes among the posts that were drawn at random.
    pub random: Proportion,
}

impl Desk {
    pub fn new(store: Store, clock: SharedClock, random_share: f64) -> Self {
        Self {
            store,
            clock,
            random_share,
            asked: Mutex::default(),
        }
    }

    /// What the views show, and its labels; `None` where nothing is labelled.
    pub async fn current(&self) -> Result<Option<(Target, LabelSet)>, StoreError> {
        let Some(target) = self.store.labels().current_target().await? else {
            return Ok(None);
        };
        Ok(Some((
            target,
            self.store.labels().label_set(target.label_set).await?,
        )))
    }

    /// The post that a person has in hand, or the next one.
    pub async fn next(&self, who: &str, target: Target) -> Result<NextPost, StoreError> {
        let mut asked = self.asked.lock().await;
        if asked.target != Some(target) {
            (asked.target, asked.closest) = (Some(target), VecDeque::new());
        }
        let in_hand = asked.person(who).in_hand.clone();
        if let Some(InHand { post, chosen, .. }) = in_hand {
            if let Some(post) = self.store.gold().review_posts(target, &[post]).await?.pop() {
                return Ok(NextPost::Ask(Box::new(post), chosen));
            }
            asked.person(who).in_hand = None; // It was purged.
        }
        let now = self.clock.now();
        asked.forget_visitors(who, now);
        let taken = asked.taken(who, now);
        let number = asked.person(who).answers;
        let first = if sampling::is_random_turn(number, self.random_share) {
            SampleReason::Random
        } else {
            SampleReason::Closest
        };
        let second = match first {
            SampleReason::Random => SampleReason::Closest,
            _ => SampleReason::Random,
        };
        // Posts without any answer first; then what others answered, because a second opinion shows how sure people are; at
        // last what others have in hand, so that nobody waits for anybody.
        let skipped = asked.person(who).skipped.clone();
        for (reviewer, taken) in [(None, &taken), (Some(who), &taken), (Some(who), &skipped)] {
            for chosen in [first, second] {
                let found = self
                    .find(&mut asked, target, chosen, reviewer, taken)
                    .await?;
                if let Some(post) = found {
                    asked.person(who).in_hand = Some(InHand {
                        post: post.fullname.clone(),
                        chosen,
                        since: now,
                    });
                    return Ok(NextPost::Ask(Box::new(post), chosen));
                }
            }
        }
        Ok(match asked.person(who).skipped.len() {
            0 => NextPost::Done,
            skipped => NextPost::Skipped(skipped),
        })
    }

    /// The first post of a kind that nobody has in hand.
    async fn find(
        &self,
        asked: &mut MutexGuard<'_, Asked>,
        target: Target,
        chosen: SampleReason,
        reviewer: Option<&str>,
        taken: &HashSet<Fullname>,
    ) -> Result<Option<ReviewPost>, StoreError> {
        let more = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        let store = &self.store;
        if chosen == SampleReason::Random || reviewer.is_some() {
            // So many may be taken at most, so one more is free, if there is any.
            let limit = more.saturating_add(1);
            let found = match chosen {
                SampleReason::Random => store.gold().random_posts(target, reviewer, limit).await?,
                _ => store.gold().closest_calls(target, reviewer, limit).await?,
            };
            let free = found.into_iter().find(|post| !taken.contains(post));
            let free: Vec<Fullname> = free.into_iter().collect();
            return Ok(store.gold().review_posts(target, &free).await?.pop());
        }
        // Refilled once: a fresh window without a free post means that there is none.
        for may_refill in [true, false] {
            while let Some(at) = asked.closest.iter().position(|post| !taken.contains(post)) {
                let post = asked.closest.remove(at).expect("it was found there");
                // It may have been purged, or answered under another server, since the window was read.
                let answered = !store.gold().said_of(&post).await?.is_empty();
                let found = store.gold().review_posts(target, &[post]).await?.pop();
                if let Some(post) = found.filter(|_| !answered) {
                    return Ok(Some(post));
                }
            }
            if may_refill {
                let limit = more.saturating_add(WINDOW);
                asked.closest = store
                    .gold()
                    .closest_calls(target, None, limit)
                    .await?
                    .into();
            }
        }
        Ok(None)
    }

    /// Stores what a person says about a post that was shown, with how it was chosen for them; false where it is gone, or
    /// has another text now.
    pub async fn answer(&self, mut answer: GoldAnswer, target: Target) -> Result<bool, StoreError> {
        let post = &answer.fullname;
        let shown = self
            .store
            .gold()
            .review_posts(target, std::slice::from_ref(post));
        let shown = shown.await?.pop();
        let mut asked = self.asked.lock().await;
        let person = asked.person(&answer.reviewer);
        if let Some(one) = person.in_hand.take_if(|one| one.post == *post) {
            answer.chosen = one.chosen;
        } else if let Some(earlier) = self
            .store
            .gold()
            .answers()
            .await?
            .into_iter()
            .find(|one| one.answer.fullname == *post && one.answer.reviewer == answer.reviewer)
        {
            // A correction, or a form that was sent twice.
            answer.chosen = earlier.answer.chosen;
        }
        let post = &answer.fullname;
        // People judge the text that they saw; another one may deserve another label.
        if shown.is_none_or(|shown| Some(shown.text_hash) != answer.text_hash) {
            return Ok(false);
        }
        let saved = self
            .store
            .gold()
            .save_gold(std::slice::from_ref(&answer))
            .await?;
        if !saved.missing.is_empty() {
            return Ok(false);
        }
        // A form that is sent twice, or an answer that is corrected at once, is one question.
        if person.said.last() != Some(post) {
            person.said.push(post.clone());
            person.answers += 1;
        }
        person.skipped.remove(post);
        Ok(true)
    }

    /// What a person said of a post, and the post.
    pub async fn said(
        &self,
        post: &Fullname,
        who: &str,
        target: Target,
    ) -> Result<Option<(Option<String>, ReviewPost)>, StoreError> {
        let said = self.store.gold().said_of(post).await?.into_iter();
        let mine = said
            .filter(|(reviewer, _)| reviewer == who)
            .map(|(_, label)| label)
            .next();
        let shown = self
            .store
            .gold()
            .review_posts(target, std::slice::from_ref(post))
            .await?
            .pop();
        Ok(mine.zip(shown))
    }

    /// Passes over a post: the person is not asked about it again, until nothing else is left.
    pub async fn skip(&self, who: &str, post: &Fullname) {
        let mut asked = self.asked.lock().await;
        let person = asked.person(who);
        person.in_hand = None;
        person.skipped.insert(post.clone());
    }

    /// Asks about what was skipped after all.
    pub async fn again(&self, who: &str) {
        let mut asked = self.asked.lock().await;
        asked.person(who).skipped.clear();
        // Their turn among the close calls is over.
        asked.closest.clear();
    }

    /// Takes a person's last answer on this page back, and puts its post in their hands; whether there was one.
    pub async fn undo(&self, who: &str) -> Result<bool, StoreError> {
        let mut asked = self.asked.lock().await;
        let answers = self.store.gold().answers().await?;
        let mine = answers
            .into_iter()
            .filter(|one| one.answer.reviewer == who && one.answer.source == GoldSource::Review);
        let mine: Vec<GoldAnswer> = mine.map(|one| one.answer).collect();
        let person = asked.person(who);
        // What was said before the server started is known by its time alone.
        let last = loop {
            match person.said.pop() {
                None => break mine.iter().max_by_key(|one| one.answered_at),
                Some(post) => {
                    let found = mine.iter().find(|one| one.fullname == post);
                    if found.is_some() {
                        break found;
                    }
                }
            }
        };
        let Some(last) = last else {
            return Ok(false);
        };
        let undone = self.store.gold().forget_gold(&last.fullname, who).await?;
        person.answers = person.answers.saturating_sub(1);
        person.in_hand = Some(InHand {
            post: last.fullname.clone(),
            chosen: last.chosen,
            since: self.clock.now(),
        });
        Ok(undone)
    }

    pub async fn standing(
        &self,
        target: Target,
        set: &LabelSet,
    ) -> Result<ReviewProgress, StoreError> {
        let Consensus {
            mut rows,
            random,
            disagreements,
            offered,
            ..
        } = gold::consensus(self.store.gold().answers().await?);
        let posts = rows.len();
        // What was said under another set says something here only where its labels are those of this one.
        gold::remove_partly_offered(&self.store, &mut rows, &offered, &[set]).await?;
        let has = |slug: &str| set.labels.iter().any(|label| label.slug == slug);
        rows.retain(|row| row.label.is_empty() || has(&row.label));
        let understood = gold::resolve(rows, &[set], true).unwrap_or_default();
        let labelling = Labelling {
            set,
            stored: Some(target),
            computed: HashMap::new(),
        };
        let held = join::join_gold(&self.store, &[labelling], &understood.posts).await?;
        let drawn = held.restricted_to(&random);
        let random = evaluate(&drawn.rows[0], set.labels.len()).outcome;
        Ok(ReviewProgress {
            posts,
            disagreements: disagreements.len(),
            random,
        })
    }
}

impl InHand {
    /// Whether the person may still be at it.
    fn is_fresh(&self, now: DateTime<Utc>) -> bool {
        (now - self.since).to_std().is_ok_and(|age| age < IN_HAND)
    }
}

impl Asked {
    fn person(&mut self, who: &str) -> &mut Person {
        self.people.entry(who.to_owned()).or_default()
    }

    /// Drops those who only looked: they have said nothing, and the post that was put in their hands is free again. Names
    /// come from addresses, so that anybody may make up any number of them.
    fn forget_visitors(&mut self, who: &str, now: DateTime<Utc>) {
        let Self {
            people, closest, ..
        } = self;
        people.retain(|name, person| {
            let stays = name == who
                || person.answers > 0
                || !person.said.is_empty()
                || !person.skipped.is_empty()
                || person.in_hand.as_ref().is_some_and(|one| one.is_fresh(now));
            if let (false, Some(one)) = (stays, &person.in_hand)
                && one.chosen == SampleReason::Closest
            {
                closest.push_front(one.post.clone());
            }
            stays
        });
    }

    /// Posts that others have in hand, and what the person skipped.
    fn taken(&mut self, who: &str, now: DateTime<Utc>) -> HashSet<Fullname> {
        let others = self.people.iter().filter(|(name, _)| *name != who);
        let others = others.filter_map(|(_, person)| person.in_hand.as_ref());
        let held = others.filter(|one| one.is_fresh(now));
        let held: HashSet<Fullname> = held.map(|one| one.post.clone()).collect();
        let mut taken = self.person(who).skipped.clone();
        taken.extend(held);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_looked_is_forgotten_and_their_post_is_free_again() {
        let start = DateTime::UNIX_EPOCH;
        let in_hand = |post: &str, chosen| {
            Some(InHand {
                post: post.parse().unwrap(),
                chosen,
                since: start,
            })
        };
        let mut asked = Asked::default();
        for at in 0..100 {
            asked.person(&format!("visitor {at}"));
        }
        asked.person("looked").in_hand = in_hand("t3_a1", SampleReason::Closest);
        asked.person("drew").in_hand = in_hand("t3_a2", SampleReason::Random);
        asked.person("ada").in_hand = in_hand("t3_a3", SampleReason::Closest);
        asked.person("ben").in_hand = in_hand("t3_a4", SampleReason::Closest);
        asked.person("ben").said = vec!["t3_a5".parse().unwrap()];
        asked.person("carl").skipped = ["t3_a6".parse().unwrap()].into();
        asked.forget_visitors("ada", start + Duration::from_mins(1));
        assert_eq!(asked.people.len(), 5, "those without a post are gone");
        asked.forget_visitors("ada", start + IN_HAND);
        let mut left: Vec<&str> = asked.people.keys().map(String::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["ada", "ben", "carl"]);
        assert_eq!(asked.closest, ["t3_a1".parse::<Fullname>().unwrap()]);
    }
}
