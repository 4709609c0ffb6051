//! Times the store's operations for labelling and for users, at a given number of posts.
//!
//!     bench-store URL POSTS SCORED
//!
//! Nine tenths of the posts are labelled. The first SCORED posts also have 16 rows of logits each. These are most of
//! the rows of the database, but no timed statement scans them. The database is filled by bulk SQL and kept: a second
//! run times it as it is.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, SqliteConnection};
use tokio_util::sync::CancellationToken;
use topicmill::classify::{self, MakeCurrent, Options};
use topicmill::run::Run;
use topicmill_core::clock::{SharedClock, SystemClock};
use topicmill_core::model_kind::NliClasses;
use topicmill_core::record::{ClassifyCounts, RunSettings};
use topicmill_core::reddit::post_text;
use topicmill_core::score::LabelOutcome;
use topicmill_core::{Label, LabelSet, Mode, ModelKind, PairLogits, Scores, Stage, TextHash};
use topicmill_review::rescore::stored_logits;
use topicmill_score::Engine;
use topicmill_score::EngineError;
use topicmill_score::Labeler;
use topicmill_score::batch::Batch;
use topicmill_score::engine::Logits;
use topicmill_score::folder::ModelFolder;
use topicmill_store::{
    Access, Claim, Claimant, Classified, CrashFilter, HypothesisId, LabelWrite, ModelRow,
    NewLogits, RunId, Store, Target,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LABELS: usize = 16;
/// Posts per claim and write.
const WINDOW: u32 = 1_000;
const LEASE: Duration = Duration::from_hours(1);
/// Selects the posts to be claimed.
const UNLABELLED: &str = "SELECT fullname, title, selftext FROM things p \
    WHERE NOT EXISTS (SELECT 1 FROM classifications c WHERE c.fullname = p.fullname)";

/// Parameters: $1: number of posts, $2 and $3: runs, $4: model, $5: label set, $6: number of posts with logits.
const FILL_SQLITE: [&str; 6] = [
    "INSERT INTO things (fullname, subreddit, topic, title, selftext, permalink, author, reddit_score, num_comments, \
       over_18, is_self, source, text_hash, created_at, collected_at, updated_at, checked_at) \
     WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1) \
     SELECT 't3_1' || printf('%06x', i), 'sub' || (i % 30), 'topic' || (i % 16), \
       'A title of about sixty characters, as posts have, number ' || i, \
       CASE WHEN i % 2 THEN substr(hex(zeroblob(200)), 1, 400) ELSE '' END, \
       '/r/sub/comments/1' || printf('%06x', i) || '/a_title_of_about/', lower(hex(randomblob(16))), i % 500, \
       i % 50, FALSE, TRUE, 'reddit', randomblob(16), \
       strftime('%Y-%m-%dT%H:%M:%S+00:00', 1700000000 + i * 60, 'unixepoch'), '2026-01-01T00:00:00+00:00', \
       '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00' FROM n",
    "INSERT INTO sightings SELECT fullname, 'topic' || (rowid % 16), '2026-01-01', 1, $2, 'new', rowid % 1000, \
       reddit_score FROM things",
    "INSERT INTO sightings SELECT fullname, 'topic' || (rowid % 16), '2026-01-02', 1, $3, 'new', rowid % 1000, \
       reddit_score FROM things WHERE rowid % 10 = 0",
    "INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode, \
       run_id, classified_at, day, topic) SELECT fullname, $4, $5, text_hash, \
       'topic' || ((rowid + (rowid % 5 = 0)) % 16), 0.5 + (rowid % 500) / 1000.0, (rowid * 919 % 1000) / 1000.0, \
       FALSE, 'single', $3, '2026-01-02T00:00:00+00:00', unixepoch(substr(created_at, 1, 10)) / 86400, topic \
       FROM things WHERE rowid <= $1 * 9 / 10",
    "INSERT INTO packed_scores SELECT fullname, $4, $5, \
       (SELECT json_group_array(abs(random()) / 9223372036854775808.0) FROM labels WHERE label_set_id = $5 \
           AND things.fullname IS NOT NULL) FROM things WHERE things.rowid <= $1 * 9 / 10",
    "INSERT INTO pair_logits SELECT $4, text_hash, h.id, 0.1 * h.id, -1.5, 0.25 FROM things \
       JOIN hypotheses h ON TRUE WHERE things.rowid <= $6",
];

const FILL_POSTGRES: [&str; 6] = [
    "INSERT INTO things (fullname, subreddit, topic, title, selftext, permalink, author, reddit_score, num_comments, \
       over_18, is_self, source, text_hash, created_at, collected_at, updated_at, checked_at) \
     SELECT 't3_1' || lpad(to_hex(i), 6, '0'), 'sub' || (i % 30), 'topic' || (i % 16), \
       'A title of about sixty characters, as posts have, number ' || i, \
       CASE WHEN i % 2 = 1 THEN (SELECT string_agg(md5((i + k)::text), '') FROM generate_series(1, 12) k) \
         ELSE '' END, \
       '/r/sub/comments/1' || lpad(to_hex(i), 6, '0') || '/a_title_of_about/', md5(i::text), i % 500, \
       i % 50, FALSE, TRUE, 'reddit', decode(md5('t' || i), 'hex'), to_timestamp(1700000000::bigint + i * 60), \
       '2026-01-01', '2026-01-01', '2026-01-01' FROM generate_series(1, $1) i",
    "INSERT INTO sightings SELECT 't3_1' || lpad(to_hex(i), 6, '0'), 'topic' || (i % 16), '2026-01-01', 1, $2, 'new', \
       i % 1000, 1 FROM generate_series(1, $1) i",
    "INSERT INTO sightings SELECT 't3_1' || lpad(to_hex(i), 6, '0'), 'topic' || (i % 16), '2026-01-02', 1, $3, 'new', \
       i % 1000, 1 FROM generate_series(10, $1, 10) i",
    "INSERT INTO classifications (fullname, model_id, label_set_id, text_hash, label, score, margin, abstained, mode, \
       run_id, classified_at, day, topic) SELECT fullname, $4, $5, text_hash, \
       'topic' || ((i + CASE WHEN i % 5 = 0 THEN 1 ELSE 0 END) % 16), 0.5 + (i % 500) / 1000.0, \
       (i % 1000 * 919 % 1000) / 1000.0, FALSE, 'single', $3, '2026-01-02', \
       (created_at AT TIME ZONE INTERVAL '0')::date - DATE '1970-01-01', topic FROM generate_series(1, $1 * 9 / 10) i \
       JOIN things ON fullname = 't3_1' || lpad(to_hex(i), 6, '0')",
    "INSERT INTO packed_scores SELECT 't3_1' || lpad(to_hex(i), 6, '0'), $4, $5, \
       (SELECT array_agg(random()) FROM labels WHERE label_set_id = $5 AND i > 0) \
       FROM generate_series(1, $1 * 9 / 10) i",
    "INSERT INTO pair_logits SELECT $4, decode(md5('t' || i), 'hex'), h.id, 0.1 * h.id, -1.5, 0.25 \
       FROM generate_series(1, $6) i CROSS JOIN hypotheses h",
];

macro_rules! on {
    ($url:expr, $connection:ident, $body:expr) => {
        if $url.starts_with("sqlite:") {
            let mut $connection = SqliteConnection::connect($url).await?;
            $body
        } else {
            let mut $connection = PgConnection::connect($url).await?;
            $body
        }
    };
}

struct Bench {
    url: String,
    store: Store,
    clock: SharedClock,
    target: Target,
    hypotheses: Vec<HypothesisId>,
    run: RunId,
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [url, posts, scored] = &arguments[..] else {
        return Err("usage: bench-store URL POSTS SCORED".into());
    };
    let (posts, scored) = (posts.parse()?, scored.parse()?);
    let clock = SystemClock::shared();
    let store = Store::open(url, Access::Create).await?;
    let model = model_row()?;
    let set = label_set();
    let target = Target {
        model: store.labels().ensure_model(&model).await?,
        label_set: store
            .labels()
            .ensure_label_set(&set, clock.now().into())
            .await?,
    };
    let keys: Vec<String> = set
        .labels
        .iter()
        .map(|label| set.hypothesis(label))
        .collect();
    let bench = Bench {
        url: url.clone(),
        hypotheses: store.labels().ensure_hypotheses(&keys).await?,
        run: store
            .runs()
            .begin_run(Stage::Classify, "bench", clock.now().into())
            .await?,
        store,
        clock,
        target,
    };
    bench.store.labels().set_current(target).await?;
    bench.fill(posts, scored).await?;
    bench.work().await?;
    bench.look().await?;
    for workers in [1, 2, 4] {
        bench.scale(&set, workers).await?;
    }
    Ok(())
}

fn say(line: &str) -> Outcome<()> {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

fn label_set() -> LabelSet {
    let label = |i: usize| Label {
        slug: format!("topic{i}"),
        label: format!("topic {i}"),
        descriptions: vec![],
    };
    LabelSet {
        name: "bench".into(),
        template: "This text is about {}.".into(),
        mode: Mode::Single,
        threshold: 0.0,
        temperature: 1.0,
        background: None,
        fitted: None,
        labels: (0..LABELS).map(label).collect(),
    }
}

/// Returns the folder of the default model, with the outputs of an NLI model.
fn folder() -> Outcome<ModelFolder> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("models/minilm-reddit-topics");
    let mut folder = ModelFolder::open(&dir, None)?;
    folder.kind = ModelKind::Nli(NliClasses {
        count: 3,
        entailment: 2,
        contradiction: 0,
        neutral: Some(1),
    });
    Ok(folder)
}

fn model_row() -> Outcome<ModelRow> {
    let folder = folder()?;
    Ok(ModelRow {
        name: folder.name,
        kind: folder.kind.as_str().to_owned(),
        manifest_hash: folder.manifest_hash,
        precision: folder.precision,
        tokenizer_hash: folder.tokenizer_hash,
        max_tokens: i64::try_from(folder.max_tokens)?,
    })
}

/// An engine that sleeps for a fixed time per row instead of computing, so that workers do not share the CPU.
struct Paced(Duration);

impl Engine for Paced {
    fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
        let rows = batch.rows();
        std::thread::sleep(self.0 * u32::try_from(rows).unwrap_or(u32::MAX));
        Ok(Logits {
            rows,
            width: 3,
            data: [0.5, -0.5, 1.5].repeat(rows),
        })
    }
}

impl Bench {
    async fn time<T>(&self, what: &str, call: impl Future<Output = T>) -> Outcome<T> {
        let began = self.clock.elapsed();
        let done = call.await;
        let took = self.clock.elapsed().saturating_sub(began);
        say(&format!("{what}: {:.1} ms", took.as_secs_f64() * 1e3))?;
        Ok(done)
    }

    async fn fill(&self, posts: i64, scored: i64) -> Outcome<()> {
        let there = self.store.query("SELECT COUNT(*) FROM things").await?;
        if there.rows[0][0] != 0 {
            return Ok(());
        }
        let now = self.clock.now().into();
        let runs = self.store.runs();
        let begin = || runs.begin_run(Stage::Collect, "bench", now);
        let runs = [begin().await?, begin().await?];
        on!(&self.url, connection, {
            let sqlite = self.url.starts_with("sqlite:");
            for sql in if sqlite { FILL_SQLITE } else { FILL_POSTGRES } {
                // Literal numbers replace parameters, because not every statement uses all of them.
                let sql = sql
                    .replace("$1", &posts.to_string())
                    .replace("$2", &runs[0].0.to_string())
                    .replace("$3", &runs[1].0.to_string())
                    .replace("$4", &self.target.model.to_string())
                    .replace("$5", &self.target.label_set.to_string())
                    .replace("$6", &scored.to_string());
                let statement = connection.execute(AssertSqlSafe(sql));
                self.time("filled", statement).await??;
            }
            // A worker scores a text only if its hash is right.
            connection.execute("BEGIN").await?;
            for row in connection.fetch_all(UNLABELLED).await? {
                let text = post_text(row.try_get(1)?, row.try_get(2)?);
                sqlx::query("UPDATE things SET text_hash = $1 WHERE fullname = $2")
                    .bind(TextHash::new(&text).as_bytes())
                    .bind(row.try_get::<&str, _>(0)?)
                    .execute(&mut connection)
                    .await?;
            }
            connection.execute("COMMIT").await?;
            // PostgreSQL's autovacuum does this after a while; SQLite has no autovacuum of this kind.
            if !sqlite {
                let settle = connection.execute("VACUUM ANALYZE");
                self.time("VACUUM ANALYZE", settle).await??;
            }
        });
        Ok(())
    }

    fn claimant(&self) -> Claimant<'static> {
        Claimant {
            worker: "bench",
            run: self.run,
            max_attempts: 3,
            lease: LEASE,
        }
    }

    /// Runs a worker's operations, often enough for a median.
    async fn work(&self) -> Outcome<()> {
        let (store, target) = (&self.store, self.target);
        let backlog = store.backlog();
        let missing = backlog.enqueue_missing(target);
        let missing = self.time("enqueue_missing", missing).await??;
        say(&format!("  posts added to the backlog: {missing}"))?;
        let again = backlog.enqueue_missing(target);
        self.time("enqueue_missing, none new", again).await??;
        let claimant = self.claimant();
        let (mut claims, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..11 {
            let began = self.clock.elapsed();
            let now = self.clock.now().into();
            let filter = CrashFilter::WithoutCrash;
            let claim = backlog.claim(target, &claimant, filter, WINDOW, now);
            let claim = claim.await?;
            let claimed = self.clock.elapsed();
            let hashes: Vec<_> = claim.posts.iter().map(|post| post.text_hash).collect();
            stored_logits(store, target.model, &self.hypotheses, &hashes).await?;
            let read = self.clock.elapsed();
            let done = self.done(&claim);
            let scored = self.clock.elapsed();
            let write = LabelWrite {
                target,
                logits_model: target.model,
                mode: Mode::Single,
                run: self.run,
                now,
                lease: Some(claim.lease),
            };
            backlog.save_labels(&write, &done).await?;
            let written = self.clock.elapsed();
            backlog.release(claim.lease).await?;
            claims.push(claimed.saturating_sub(began));
            reads.push(read.saturating_sub(claimed));
            writes.push(written.saturating_sub(scored));
        }
        let known = self.known_hashes().await?;
        let mut hits = Vec::new();
        for _ in 0..5 {
            let began = self.clock.elapsed();
            stored_logits(store, target.model, &self.hypotheses, &known).await?;
            hits.push(self.clock.elapsed().saturating_sub(began));
        }
        for (what, times) in [
            ("claim 1,000 posts", claims),
            ("stored_logits of 1,000 new texts", reads),
            ("stored_logits of 1,000 known texts", hits),
            ("write 1,000 × 16", writes),
        ] {
            say(&format!("{what}: {}", spread(times)))?;
        }
        Ok(())
    }

    /// Returns the hashes of up to 1,000 texts with stored logits.
    async fn known_hashes(&self) -> Outcome<Vec<topicmill_core::TextHash>> {
        let sql = "SELECT DISTINCT text_hash FROM pair_logits LIMIT 1000";
        let mut hashes = Vec::new();
        on!(&self.url, connection, {
            for row in connection.fetch_all(sql).await? {
                let hash: Vec<u8> = row.try_get(0)?;
                hashes.push(hash.as_slice().try_into().map_err(|_| "16 bytes")?);
            }
        });
        Ok(hashes)
    }

    fn done(&self, claim: &Claim) -> Vec<Classified> {
        let one = |post: &topicmill_store::ClaimedPost| {
            let logits = PairLogits {
                entailment: 1.5,
                contradiction: Some(-1.5),
                neutral: Some(0.25),
            };
            Classified {
                fullname: post.fullname.clone(),
                text_hash: post.text_hash,
                scores: Scores {
                    scores: vec![1.0 / 16.0; LABELS],
                    best: 3,
                    margin: 0.3,
                    outcome: LabelOutcome::Label,
                    other_score: None,
                },
                logits: self
                    .hypotheses
                    .iter()
                    .map(|id| NewLogits {
                        hypothesis: *id,
                        logits,
                    })
                    .collect(),
                vector: None,
            }
        };
        claim.posts.iter().map(one).collect()
    }

    /// Times the queries that users run.
    async fn look(&self) -> Outcome<()> {
        let now = self.clock.now().into();
        let standing = self.store.status().labelling_state(3, now);
        self.time("status", standing).await??;
        let about = self.store.status().estimate_labelling(3, now);
        self.time("about", about).await??;
        for sql in [
            "SELECT COUNT(*) FROM labeled_posts WHERE label IS NOT NULL",
            "SELECT * FROM topic_agreement",
            "SELECT * FROM topic_daily",
            "SELECT COUNT(*) FROM uncertain_posts",
            "SELECT * FROM uncertain_posts LIMIT 20",
        ] {
            let mut times = Vec::new();
            for _ in 0..3 {
                let began = self.clock.elapsed();
                self.store.query(sql).await?;
                times.push(self.clock.elapsed().saturating_sub(began));
            }
            say(&format!("{sql}: {}", spread(times)))?;
        }
        Ok(())
    }

    /// Runs several workers on the rest of the backlog, each with its own connection pool.
    async fn scale(&self, set: &LabelSet, workers: u32) -> Outcome<()> {
        const POSTS: u64 = 10_000;
        // About the time that a small model takes per row on a fast GPU.
        let cost = Duration::from_micros(60);
        let stop = CancellationToken::new();
        let began = self.clock.elapsed();
        let tasks = (0..workers).map(async |_| -> Outcome<u64> {
            let store = Store::open(&self.url, Access::Existing).await?;
            let run = Run {
                store: &store,
                clock: &self.clock,
                stop: &stop,
                worker: "bench",
                id: self.run,
            };
            let options = Options {
                lease: LEASE,
                max_attempts: 3,
                limit: Some(POSTS),
                retry_failed: false,
                watch: false,
                pipeline_file: None,
                make_current: MakeCurrent::Always,
                settings: RunSettings::default(),
            };
            let labeler = Labeler::load(folder()?, Box::new(Paced(cost)), 16_384)?;
            let mut done = ClassifyCounts::default();
            classify::label(
                &run,
                vec![labeler.into()],
                set,
                &options,
                &|_| {},
                &mut done,
            )
            .await?;
            say(&format!(
                "    one worker: {:.0} posts/s",
                done.posts_per_sec
            ))?;
            Ok(done.posts)
        });
        let posts: u64 = futures_util::future::join_all(tasks)
            .await
            .into_iter()
            .sum::<Outcome<u64>>()?;
        let took = self.clock.elapsed().saturating_sub(began).as_secs_f64();
        let rate = posts as f64 / took;
        say(&format!(
            "{workers} workers: {posts} posts in {took:.1} s, {rate:.0} posts/s"
        ))
    }
}

/// Returns median, minimum and maximum.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let ms = |i: usize| times[i].as_secs_f64() * 1e3;
    let (median, last) = (times.len() / 2, times.len() - 1);
    format!("{:.1} ms ({:.1} to {:.1})", ms(median), ms(0), ms(last))
}
