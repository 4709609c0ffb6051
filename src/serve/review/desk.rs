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

use crate::clock::SharedClock;
use crate::domain::{Chosen, Fullname, GoldSource};
use crate::review::ask;
use crate::review::calibrate::Share;
use crate::review::evaluate::evaluate;
use crate::review::gold::{self, Agreed};
use crate::review::held::{self, Labelling, Labels};
use crate::store::{GoldAnswer, ReviewPost, Store, StoreError, Target};
use topicmill_score::LabelSet;

/// A person who has not answered for so long may have gone; others are asked then.
const IN_HAND: Duration = Duration::from_mins(10);
/// Close calls that are read at once: to find the closest of a million posts takes a second, and to answer so many an hour.
const WINDOW: u32 = 500;

/// Where questions come from and answers go to.
pub struct Desk {
    store: Store,
    clock: SharedClock,
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
    chosen: Chosen,
    since: DateTime<Utc>,
}

/// A post that a person is asked about.
pub struct Question {
    pub post: ReviewPost,
    pub chosen: Chosen,
}

/// What there is to do for a person.
pub enum Next {
    /// This post.
    Ask(Box<Question>),
    /// Nothing but what was skipped: so many posts.
    Skipped(usize),
    /// Nothing: everything has an answer.
    Done,
}

/// How good labels are, as far as people said.
pub struct Standing {
    /// Posts on which people agree.
    pub posts: usize,
    /// Posts on which they do not.
    pub disagreements: usize,
    /// Right outcomes among the posts that were drawn at random.
    pub random: Share,
    /// More answers about random posts that would halve the interval.
    pub more: Option<usize>,
}

/// What became of an answer.
pub enum Said {
    /// It is stored.
    Stored,
    /// The post is not there any more.
    Gone,
}

impl Desk {
    /// A desk over a store that may write.
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
        let Some(target) = self.store.current_target().await? else {
            return Ok(None);
        };
        Ok(Some((
            target,
            self.store.label_set(target.label_set).await?,
        )))
    }

    /// Reads close calls ahead, so that the first person does not wait for them.
    pub async fn read_ahead(&self) -> Result<(), StoreError> {
        let mut asked = self.asked.lock().await;
        if let Some(target) = self.store.current_target().await? {
            asked.target = Some(target);
            let closest = self.store.closest_calls(target, None, WINDOW).await?;
            asked.closest = closest.into();
        }
        Ok(())
    }

    /// The post that a person has in hand, or the next one.
    pub async fn next(&self, who: &str, target: Target) -> Result<Next, StoreError> {
        let mut asked = self.asked.lock().await;
        if asked.target != Some(target) {
            (asked.target, asked.closest) = (Some(target), VecDeque::new());
        }
        let in_hand = asked.person(who).in_hand.clone();
        if let Some(InHand { post, chosen, .. }) = in_hand {
            if let Some(post) = self.store.review_posts(target, &[post]).await?.pop() {
                return Ok(Next::Ask(Box::new(Question { post, chosen })));
            }
            asked.person(who).in_hand = None; // It was purged.
        }
        let now = self.clock.now();
        let taken = asked.taken(who, now);
        let number = asked.person(who).answers;
        let first = if ask::is_random(number, self.random_share) {
            Chosen::Random
        } else {
            Chosen::Closest
        };
        let second = match first {
            Chosen::Random => Chosen::Closest,
            _ => Chosen::Random,
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
                    return Ok(Next::Ask(Box::new(Question { post, chosen })));
                }
            }
        }
        Ok(match asked.person(who).skipped.len() {
            0 => Next::Done,
            skipped => Next::Skipped(skipped),
        })
    }

    /// The first post of a kind that nobody has in hand.
    async fn find(
        &self,
        asked: &mut MutexGuard<'_, Asked>,
        target: Target,
        chosen: Chosen,
        reviewer: Option<&str>,
        taken: &HashSet<Fullname>,
    ) -> Result<Option<ReviewPost>, StoreError> {
        let more = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        let store = &self.store;
        if chosen == Chosen::Random || reviewer.is_some() {
            let limit = more.saturating_add(1);
            let found = match chosen {
                Chosen::Random => store.random_posts(target, reviewer, limit).await?,
                _ => store.closest_calls(target, reviewer, limit).await?,
            };
            let free = found.into_iter().find(|post| !taken.contains(post));
            let free: Vec<Fullname> = free.into_iter().collect();
            return Ok(store.review_posts(target, &free).await?.pop());
        }
        for may_refill in [true, false] {
            while let Some(at) = asked.closest.iter().position(|post| !taken.contains(post)) {
                let post = asked.closest.remove(at).expect("it was found there");
                // It may have been purged, or answered under another server, since the window was read.
                let answered = !store.said_of(&post).await?.is_empty();
                let found = store.review_posts(target, &[post]).await?.pop();
                if let Some(post) = found.filter(|_| !answered) {
                    return Ok(Some(post));
                }
            }
            if may_refill {
                let limit = more.saturating_add(WINDOW);
                asked.closest = store.closest_calls(target, None, limit).await?.into();
            }
        }
        Ok(None)
    }

    /// Stores what a person says about a post: a slug, or nothing for none of these.
    pub async fn answer(
        &self,
        who: &str,
        post: &Fullname,
        chosen: Chosen,
        label: Option<String>,
        target: Target,
    ) -> Result<Said, StoreError> {
        let shown = self
            .store
            .review_posts(target, std::slice::from_ref(post))
            .await?
            .pop();
        let mut asked = self.asked.lock().await;
        let person = asked.person(who);
        if person.in_hand.as_ref().is_some_and(|one| one.post == *post) {
            person.in_hand = None;
        }
        if shown.is_none() {
            return Ok(Said::Gone);
        }
        let answer = GoldAnswer {
            fullname: post.clone(),
            reviewer: who.to_owned(),
            label,
            label_set: Some(target.label_set),
            chosen,
            source: GoldSource::Review,
            answered_at: self.clock.now().into(),
        };
        let saved = self.store.save_gold(&[answer]).await?;
        if !saved.missing.is_empty() {
            return Ok(Said::Gone);
        }
        if person.said.last() != Some(post) {
            person.said.push(post.clone());
            person.answers += 1;
        }
        person.skipped.remove(post);
        Ok(Said::Stored)
    }

    /// What a person said of a post, and the post.
    pub async fn said(
        &self,
        post: &Fullname,
        who: &str,
        target: Target,
    ) -> Result<Option<(Option<String>, ReviewPost)>, StoreError> {
        let said = self.store.said_of(post).await?.into_iter();
        let mine = said
            .filter(|(reviewer, _)| reviewer == who)
            .map(|(_, label)| label)
            .next();
        let shown = self
            .store
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
        let answers = self.store.gold().await?;
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
        let undone = self.store.forget_gold(&last.fullname, who).await?;
        person.answers = person.answers.saturating_sub(1);
        person.in_hand = Some(InHand {
            post: last.fullname.clone(),
            chosen: last.chosen,
            since: self.clock.now(),
        });
        Ok(undone)
    }

    /// How good labels are, as far as people said.
    pub async fn standing(&self, target: Target, set: &LabelSet) -> Result<Standing, StoreError> {
        let Agreed {
            rows,
            random,
            disagreements,
            ..
        } = gold::agreed(self.store.gold().await?);
        let posts = rows.len();
        // A label of another set says that none of these fits.
        let understood = gold::understand(rows, &[set], true).unwrap_or_default();
        let labelling = Labelling {
            set,
            labels: Labels::Stored(target),
        };
        let held = held::hold(&self.store, &[labelling], &understood.posts).await?;
        let drawn = held.only(&random);
        let random = evaluate(&drawn.rows[0], set.labels.len()).outcome;
        Ok(Standing {
            posts,
            disagreements: disagreements.len(),
            more: ask::more_to_halve(&random),
            random,
        })
    }
}

impl Asked {
    fn person(&mut self, who: &str) -> &mut Person {
        self.people.entry(who.to_owned()).or_default()
    }

    /// Posts that others have in hand, and what the person skipped.
    fn taken(&mut self, who: &str, now: DateTime<Utc>) -> HashSet<Fullname> {
        let others = self.people.iter().filter(|(name, _)| *name != who);
        let others = others.filter_map(|(_, person)| person.in_hand.as_ref());
        let held = others.filter(|one| (now - one.since).to_std().is_ok_and(|age| age < IN_HAND));
        let held: HashSet<Fullname> = held.map(|one| one.post.clone()).collect();
        let mut taken = self.person(who).skipped.clone();
        taken.extend(held);
        taken
    }
}
