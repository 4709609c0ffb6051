-- The tables, triggers and views of a topicmill database on SQLite. migrations/postgres has the same for PostgreSQL,
-- with a comment on each column.
--
-- Times are whole seconds in UTC, as `2026-11-21T12:00:00+00:00`. This form sorts as text, and SQLite's date functions
-- accept it. Lists and objects are JSON.
--
-- Until the first release, this file is edited in place, and databases from an earlier build are rejected.

-- A row is a property of this database, for topicmill's own use.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);
-- The version of the rule that builds a post's text.
INSERT INTO meta VALUES ('text_rule', '1');
INSERT INTO meta VALUES ('author_key', lower(hex(randomblob(16))));

-- Runs and schedules

-- A row is a scheduled run. A schedule has at most one row for each due time, to prevent a run from starting twice.
CREATE TABLE scheduled_runs (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule      TEXT NOT NULL,
    due_at        TEXT NOT NULL,
    status        TEXT NOT NULL,
    worker        TEXT,
    fencing_token INTEGER NOT NULL DEFAULT 0,
    lease_until   TEXT,
    started_at    TEXT,
    finished_at   TEXT,
    outcomes      TEXT NOT NULL DEFAULT '[]',
    error         TEXT,
    UNIQUE (schedule, due_at)
);
CREATE UNIQUE INDEX scheduled_runs_running ON scheduled_runs (schedule) WHERE status = 'running';

-- A row is one execution of one stage.
CREATE TABLE runs (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    stage            TEXT NOT NULL,
    status           TEXT NOT NULL,
    worker           TEXT NOT NULL,
    started_at       TEXT NOT NULL,
    finished_at      TEXT,
    heartbeat_at     TEXT,
    counts           TEXT NOT NULL DEFAULT '{}',
    outcomes         TEXT NOT NULL DEFAULT '[]',
    error            TEXT,
    scheduled_run_id INTEGER REFERENCES scheduled_runs (id) ON DELETE SET NULL
);
CREATE INDEX runs_of_scheduled_runs ON runs (scheduled_run_id) WHERE scheduled_run_id IS NOT NULL;

-- Posts and comments

-- A row is a post or a comment as its source last returned it. Most people read the views `posts` and `comments`.
CREATE TABLE things (
    fullname         TEXT PRIMARY KEY NOT NULL,
    kind             TEXT NOT NULL DEFAULT 'post'
        CHECK (kind = CASE substr(fullname, 1, 3) WHEN 't1_' THEN 'comment' ELSE 'post' END),
    subreddit        TEXT NOT NULL,
    topic            TEXT,
    title            TEXT NOT NULL,
    selftext         TEXT NOT NULL,
    url              TEXT,
    permalink        TEXT,
    author           TEXT,
    reddit_score     BIGINT,
    reddit_score_is_placeholder BOOLEAN NOT NULL DEFAULT FALSE,
    upvote_ratio     DOUBLE PRECISION,
    num_comments     BIGINT,
    flair            TEXT,
    over_18          BOOLEAN NOT NULL,
    is_self          BOOLEAN NOT NULL,
    post             TEXT,
    parent           TEXT,
    is_submitter     BOOLEAN,
    crosspost_parent TEXT,
    source           TEXT NOT NULL,
    text_hash        BLOB NOT NULL,
    created_at       TEXT NOT NULL,
    collected_at     TEXT NOT NULL,
    updated_at       TEXT NOT NULL,
    checked_at       TEXT,
    archive_checked_at TEXT,
    removed_at       TEXT,
    text_purged_at   TEXT,
    context_purged   BOOLEAN NOT NULL DEFAULT FALSE,
    -- The constant is the hash of an empty text.
    has_text         BOOLEAN NOT NULL GENERATED ALWAYS AS
        (text_purged_at IS NULL AND NOT context_purged AND text_hash <> X'e3b0c44298fc1c149afbf4c8996fb924') VIRTUAL
);
-- `kind` comes second, so that a query that only names a kind reads `things_current`, which covers it.
CREATE INDEX things_created_at ON things (created_at, kind);
CREATE INDEX things_checked_at ON things (checked_at, fullname);
CREATE INDEX things_archive_checked_at ON things (archive_checked_at, fullname);
CREATE INDEX things_with_text ON things (collected_at, kind) WHERE text_purged_at IS NULL;
CREATE INDEX things_without_text ON things (text_purged_at) WHERE text_purged_at IS NOT NULL;
CREATE INDEX things_crosspost_parent ON things (crosspost_parent) WHERE crosspost_parent IS NOT NULL;
CREATE INDEX things_with_title ON things (post) WHERE post IS NOT NULL AND title <> '';
-- Includes all columns that the views and the search for unlabelled posts read, except the text.
CREATE INDEX things_current ON things (fullname, kind, text_hash, created_at, topic, has_text, subreddit, source);
-- For `topic_agreement`. The condition is true for any topic. Queries for the newest posts of a topic do not repeat the
-- condition, so they cannot use this index, which is not in time order.
CREATE INDEX things_counted ON things (kind, topic) WHERE topic >= '';

-- A row records on which day runs saw a post for a topic, so that a year of hourly runs has few rows.
CREATE TABLE sightings (
    fullname     TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE,
    topic        TEXT NOT NULL,
    day          TEXT NOT NULL,
    times_seen   INTEGER NOT NULL,
    run_id       INTEGER NOT NULL,
    listing      TEXT,
    best_rank    INTEGER,
    reddit_score BIGINT,
    PRIMARY KEY (fullname, topic, day)
) WITHOUT ROWID;

-- A row is a watermark: how far a subreddit was read.
CREATE TABLE watermarks (
    source            TEXT NOT NULL,
    topic             TEXT NOT NULL,
    subreddit         TEXT NOT NULL,
    listing           TEXT,
    after_cursor      TEXT,
    newest_created_at TEXT,
    read_from         TEXT,
    run_id            INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    updated_at        TEXT NOT NULL,
    PRIMARY KEY (source, topic, subreddit)
) WITHOUT ROWID;

-- A row is a gap: a time range in which some of a subreddit's posts could not be fetched, because Reddit listed too
-- few, because a run of `collect --since` did not finish, or because a later run did not read back to that time range.
CREATE TABLE gaps (
    source    TEXT NOT NULL,
    topic     TEXT NOT NULL,
    subreddit TEXT NOT NULL,
    from_at   TEXT NOT NULL,
    until_at  TEXT NOT NULL,
    run_id    INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    PRIMARY KEY (source, topic, subreddit, from_at)
) WITHOUT ROWID;
CREATE INDEX gaps_run ON gaps (run_id) WHERE run_id IS NOT NULL;

-- A row is a part of the sampling frame: from a time on, only posts with these keywords were stored for a topic.
CREATE TABLE topic_keywords (
    topic    TEXT NOT NULL,
    since    TEXT NOT NULL,
    keywords TEXT NOT NULL,
    PRIMARY KEY (topic, since)
) WITHOUT ROWID;

-- A row is the progress of importing a dump.
CREATE TABLE imports (
    file        TEXT NOT NULL,
    selection   TEXT NOT NULL,
    name        TEXT NOT NULL,
    byte_offset BIGINT NOT NULL,
    rows_read   BIGINT NOT NULL,
    left_out    BIGINT NOT NULL,
    posts       BIGINT NOT NULL,
    rejected    BIGINT NOT NULL,
    run_id      INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    updated_at  TEXT NOT NULL,
    finished_at TEXT,
    PRIMARY KEY (file, selection)
) WITHOUT ROWID;

-- A row is a purged post's tombstone, which prevents the post from being stored again. Nothing else is kept.
CREATE TABLE tombstones (
    fullname  TEXT PRIMARY KEY NOT NULL,
    reason    TEXT NOT NULL,
    purged_at TEXT NOT NULL,
    run_id    INTEGER REFERENCES runs (id) ON DELETE SET NULL
) WITHOUT ROWID;
CREATE INDEX tombstones_run ON tombstones (run_id) WHERE run_id IS NOT NULL;

-- A row is the rate-limit state of a client id, shared by all processes that collect into this database.
CREATE TABLE quotas (
    id         TEXT PRIMARY KEY NOT NULL,
    next_at    BIGINT NOT NULL,
    held_until BIGINT NOT NULL
) WITHOUT ROWID;

-- Models and labels

-- A row is a model in one configuration. A model with a shortlist from a small model has a separate row.
CREATE TABLE models (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    name           TEXT NOT NULL,
    kind           TEXT NOT NULL,
    manifest_hash  TEXT NOT NULL,
    number_format  TEXT NOT NULL,
    tokenizer_hash TEXT NOT NULL,
    max_tokens     BIGINT NOT NULL,
    UNIQUE (manifest_hash, number_format, max_tokens)
);

-- A row is a version of a label set. Changing the template, mode, threshold, temperature, background, labels or fit
-- creates a new version.
CREATE TABLE label_sets (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    name              TEXT NOT NULL,
    hash              TEXT NOT NULL UNIQUE,
    template          TEXT NOT NULL,
    mode              TEXT NOT NULL,
    threshold         DOUBLE PRECISION NOT NULL,
    temperature       REAL NOT NULL DEFAULT 1,
    background        TEXT,
    background_topics TEXT,
    fitted            TEXT,
    created_at        TEXT NOT NULL
);

-- A row is a label in a label set.
CREATE TABLE labels (
    label_set_id INTEGER NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    position     INTEGER NOT NULL,
    label        TEXT NOT NULL,
    label_name   TEXT NOT NULL,
    hypothesis   TEXT NOT NULL,
    descriptions TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (label_set_id, position),
    UNIQUE (label_set_id, label)
) WITHOUT ROWID;

-- The only row identifies the model and the label set that the views show.
CREATE TABLE current_target (
    only_row     BOOLEAN PRIMARY KEY NOT NULL DEFAULT TRUE CHECK (only_row),
    model_id     INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    label_set_id INTEGER NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE
);

-- A row is a hypothesis that models compare with posts, or a label's texts. For a label with a learned vector
-- (docs/models.md), the text begins with an empty line and `A learned vector of:`.
CREATE TABLE hypotheses (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    hash BLOB NOT NULL UNIQUE,
    text TEXT NOT NULL
);

-- A row contains an NLI model's logits for a text and a hypothesis, a classifier's logit for a text and one of its
-- labels, or a GLiClass model's logit for a text and a label, given the other labels in its set. Logits are computed
-- once per text and shared by all posts with that text.
CREATE TABLE pair_logits (
    model_id      INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    text_hash     BLOB NOT NULL,
    hypothesis_id INTEGER NOT NULL REFERENCES hypotheses (id) ON DELETE CASCADE,
    entailment    REAL NOT NULL,
    contradiction REAL,
    neutral       REAL,
    PRIMARY KEY (model_id, text_hash, hypothesis_id)
) WITHOUT ROWID;

-- A row is the embedding of a text. It is computed once and serves all label sets. A purge, an edit or retention
-- deletes it along with the text unless another labelled post has the same text.
CREATE TABLE text_vectors (
    model_id  INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    text_hash BLOB NOT NULL,
    vector    BLOB NOT NULL,
    PRIMARY KEY (model_id, text_hash)
);

-- A row is the embedding of a label and its descriptions, or a label's learned vector (docs/models.md).
CREATE TABLE label_vectors (
    model_id      INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    hypothesis_id INTEGER NOT NULL REFERENCES hypotheses (id) ON DELETE CASCADE,
    vector        BLOB NOT NULL,
    PRIMARY KEY (model_id, hypothesis_id)
);

-- A row is a post's label from a model and a label set.
CREATE TABLE classifications (
    fullname      TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE,
    model_id      INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    label_set_id  INTEGER NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    text_hash     BLOB NOT NULL,
    label         TEXT NOT NULL,
    score         DOUBLE PRECISION NOT NULL,
    margin        DOUBLE PRECISION NOT NULL,
    abstained     BOOLEAN NOT NULL,
    other         BOOLEAN NOT NULL DEFAULT FALSE,
    mode          TEXT NOT NULL,
    run_id        INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    classified_at TEXT NOT NULL,
    day           INTEGER,
    topic         TEXT,
    PRIMARY KEY (model_id, label_set_id, fullname)
) WITHOUT ROWID;
CREATE INDEX classifications_fullname ON classifications (fullname);
CREATE INDEX classifications_run ON classifications (run_id);
-- For lookups by text. Only queries that repeat the condition use it.
CREATE INDEX classifications_text ON classifications (text_hash, fullname) WHERE text_hash >= '';
-- Serves `uncertain_posts`: same condition, same order.
CREATE INDEX classifications_uncertain ON classifications (model_id, label_set_id, margin, fullname)
    WHERE margin < 0.2 OR abstained;
CREATE INDEX classifications_counted ON classifications (model_id, label_set_id, day, label, abstained, other, topic, score)
    WHERE day IS NOT NULL AND fullname >= 't3';
CREATE INDEX classifications_uncounted ON classifications (model_id, label_set_id, fullname) WHERE day IS NULL;

-- A row contains all scores for a classification. The `label_scores` view has one row per score.
CREATE TABLE packed_scores (
    fullname     TEXT NOT NULL,
    model_id     INTEGER NOT NULL,
    label_set_id INTEGER NOT NULL,
    scores       TEXT NOT NULL, -- a JSON array
    PRIMARY KEY (model_id, label_set_id, fullname),
    FOREIGN KEY (model_id, label_set_id, fullname)
        REFERENCES classifications (model_id, label_set_id, fullname) ON DELETE CASCADE
) WITHOUT ROWID;

-- A row is a gold label: an annotator's answer about a post, from `serve --review` or `labels gold import`. It is
-- deleted when the post is purged but kept when retention deletes the text.
CREATE TABLE gold (
    fullname         TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE,
    annotator        TEXT NOT NULL,
    label            TEXT,
    label_set_id     INTEGER REFERENCES label_sets (id) ON DELETE SET NULL,
    text_hash        BLOB NOT NULL CHECK (length(text_hash) = 16),
    chosen           TEXT NOT NULL CHECK (chosen IN ('random', 'closest', 'filter', 'import')),
    in_random_sample BOOLEAN NOT NULL DEFAULT FALSE,
    source           TEXT NOT NULL CHECK (source IN ('review', 'import', 'label-studio')),
    answered_at      TEXT NOT NULL CHECK (answered_at GLOB '[0-9][0-9][0-9][0-9]-*'),
    note             TEXT,
    PRIMARY KEY (fullname, annotator)
);

-- A row is the label that a post gets from a fit without the post's answer. With these labels, the answers that a label
-- set was fitted to can measure it.
CREATE TABLE cross_fitted (
    label_set_id INTEGER NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    fullname     TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE,
    text_hash    BLOB NOT NULL,
    label        TEXT NOT NULL,
    score        DOUBLE PRECISION NOT NULL,
    abstained    BOOLEAN NOT NULL,
    PRIMARY KEY (label_set_id, fullname)
) WITHOUT ROWID;
CREATE INDEX cross_fitted_fullname ON cross_fitted (fullname);

-- The backlog

-- A row is a lease: a worker's claim on posts in the backlog, with an expiry time.
CREATE TABLE leases (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    worker     TEXT NOT NULL,
    run_id     INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    claimed_at TEXT NOT NULL,
    expires_at TEXT NOT NULL
);
CREATE INDEX leases_expires_at ON leases (expires_at);

-- A row is a post that is waiting for a label. Posts that crashed fewer workers are claimed first.
CREATE TABLE backlog (
    model_id     INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    label_set_id INTEGER NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    fullname     TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE,
    lease_id     INTEGER REFERENCES leases (id) ON DELETE SET NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,
    crashes      INTEGER NOT NULL DEFAULT 0,
    error        TEXT,
    PRIMARY KEY (model_id, label_set_id, fullname)
) WITHOUT ROWID;
CREATE INDEX backlog_claimable ON backlog (model_id, label_set_id, crashes, attempts, fullname) WHERE lease_id IS NULL;
CREATE INDEX backlog_lease ON backlog (lease_id) WHERE lease_id IS NOT NULL;
CREATE INDEX backlog_fullname ON backlog (fullname);

-- A trigger

-- Copies changes in a post to the `day` and `topic` of its labels.
CREATE TRIGGER things_change_labels AFTER UPDATE OF text_hash, created_at, topic ON things
  WHEN OLD.text_hash IS NOT NEW.text_hash OR OLD.created_at IS NOT NEW.created_at OR OLD.topic IS NOT NEW.topic
BEGIN
    UPDATE classifications
       SET day = CASE WHEN text_hash = NEW.text_hash
                      THEN CAST(strftime('%s', substr(NEW.created_at, 1, 10)) AS INTEGER) / 86400 END,
           topic = NEW.topic
     WHERE fullname = NEW.fullname;
END;

-- Views
--
-- `NOT INDEXED` forces SQLite to read labels by primary key, `+` keeps it from using an index, and `CROSS JOIN` fixes the
-- join order. `uncertain_posts` and the counts use partial indexes, which SQLite considers only if the query repeats the
-- index's condition literally. Names of posts begin with `t3_`, those of comments with `t1_`.

-- A row is a post.
CREATE VIEW posts AS
SELECT fullname,
       subreddit,
       topic,
       title,
       selftext,
       url,
       permalink,
       author,
       reddit_score,
       reddit_score_is_placeholder,
       upvote_ratio,
       num_comments,
       flair,
       over_18,
       is_self,
       crosspost_parent,
       source,
       created_at,
       collected_at,
       updated_at,
       checked_at,
       archive_checked_at,
       removed_at,
       text_purged_at,
       has_text
  FROM things WHERE kind = 'post';

-- A row is a comment.
CREATE VIEW comments AS
SELECT fullname,
       post,
       parent,
       subreddit,
       topic,
       selftext AS body,
       permalink,
       author,
       reddit_score,
       reddit_score_is_placeholder,
       is_submitter,
       source,
       created_at,
       collected_at,
       updated_at,
       checked_at,
       archive_checked_at,
       removed_at,
       text_purged_at,
       context_purged,
       has_text
  FROM things WHERE kind = 'comment';

-- A row is a post or a comment with its current label. If its current text has no label, the label columns are NULL.
CREATE VIEW labeled_things AS
SELECT p.fullname,
       p.kind,
       p.post,
       p.parent,
       p.subreddit,
       p.topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE l.label_name END AS label_name,
       c.score,
       c.margin,
       c.abstained,
       p.reddit_score,
       p.num_comments,
       p.created_at,
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome,
       (SELECT COALESCE(g.label, 'other')
          FROM gold g WHERE g.fullname = p.fullname AND g.text_hash = p.text_hash
         GROUP BY COALESCE(g.label, 'other')
        HAVING 2 * COUNT(*) > (SELECT COUNT(*) FROM gold a WHERE a.fullname = p.fullname AND a.text_hash = p.text_hash)) AS gold,
       (SELECT group_concat(g.annotator, ', ')
          FROM gold g WHERE g.fullname = p.fullname AND g.text_hash = p.text_hash) AS gold_by,
       p.context_purged
  FROM things p
  LEFT JOIN classifications c NOT INDEXED
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label;

-- A row is a post with its current label. If its current text has no label, the label columns are NULL.
CREATE VIEW labeled_posts AS
SELECT fullname,
       subreddit,
       topic,
       title,
       label,
       label_name,
       score,
       margin,
       abstained,
       reddit_score,
       num_comments,
       created_at,
       classified_at,
       selftext,
       url,
       permalink,
       author,
       source,
       crosspost_parent,
       outcome,
       gold,
       gold_by
  FROM labeled_things WHERE kind = 'post';

-- A row is a comment with its current label. If its current text has no label, the label columns are NULL.
CREATE VIEW labeled_comments AS
SELECT fullname,
       post,
       parent,
       subreddit,
       topic,
       (SELECT p.title FROM things p WHERE p.fullname = t.post) AS post_title,
       selftext AS body,
       label,
       label_name,
       score,
       margin,
       abstained,
       reddit_score,
       created_at,
       classified_at,
       permalink,
       author,
       source,
       outcome,
       gold,
       gold_by,
       context_purged
  FROM labeled_things t WHERE kind = 'comment';

-- A row is a labelled post whose two best scores differ by less than 0.2, or whose outcome is `unsure`. The closest
-- calls come first. A post that is clearly `other` is not included.
CREATE VIEW uncertain_posts AS
SELECT p.fullname,
       p.subreddit,
       p.topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE l.label_name END AS label_name,
       c.score,
       c.margin,
       c.abstained,
       p.reddit_score,
       p.num_comments,
       p.created_at,
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM classifications c
  JOIN things p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND +p.kind = 'post'
   AND (c.margin < 0.2 OR c.abstained)
   AND (c.margin < 0.2 OR NOT c.other)
 ORDER BY c.margin, c.fullname;

-- A row is one label's score for one post, for any model and any label set, identified by their keys. The view unnests
-- `packed_scores`.
CREATE VIEW label_scores AS
SELECT p.fullname, p.model_id, p.label_set_id, s.key AS position, s.value AS score
  FROM packed_scores p, json_each(p.scores) s;

-- A row is one label's score for one post, for the current model and label set.
CREATE VIEW post_scores AS
SELECT s.fullname, l.label, l.label_name, s.score
  FROM current_target t
  JOIN label_scores s ON s.model_id = t.model_id AND s.label_set_id = t.label_set_id
  JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position;

-- A row is a topic in the current label set, with the share of its posts whose label agrees with the topic that they
-- were collected for. An imported file may also refer to a topic by its label. Topics that are not in the label set are
-- excluded; without a current label set, all topics are included.
CREATE VIEW topic_agreement AS
  WITH ours AS (
       SELECT l.label, l.label_name FROM labels l JOIN current_target t ON t.label_set_id = l.label_set_id),
       named AS (
       SELECT label AS name, label FROM ours
        UNION ALL
       SELECT label_name, MIN(label) FROM ours
        WHERE label_name NOT IN (SELECT label FROM ours) GROUP BY label_name HAVING COUNT(*) = 1),
       counted AS (
       SELECT topic, NULL AS label, FALSE AS abstained, COUNT(*) AS posts, 0 AS labelled
         FROM things WHERE kind = 'post' AND topic >= '' GROUP BY topic
        UNION ALL
       SELECT topic, label, abstained, 0, COUNT(*)
         FROM classifications INDEXED BY classifications_counted
        WHERE model_id = (SELECT model_id FROM current_target)
          AND label_set_id = (SELECT label_set_id FROM current_target)
          AND fullname >= 't3' AND day IS NOT NULL AND topic IS NOT NULL
        GROUP BY day, label, abstained, other, topic
        UNION ALL
       SELECT p.topic, c.label, c.abstained, 0, 1
         FROM classifications c INDEXED BY classifications_uncounted
        CROSS JOIN things p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.fullname >= 't3' AND c.day IS NULL AND p.topic IS NOT NULL)
SELECT COALESCE(n.label, c.topic) AS topic,
       SUM(c.posts) AS posts,
       SUM(c.labelled) AS labelled,
       SUM(CASE WHEN c.label = n.label AND NOT c.abstained THEN c.labelled ELSE 0 END) AS agreed,
       1.0 * SUM(CASE WHEN c.label = n.label AND NOT c.abstained THEN c.labelled ELSE 0 END)
         / NULLIF(SUM(c.labelled), 0) AS agreement
  FROM counted c
  LEFT JOIN named n ON n.name = c.topic
 WHERE n.label IS NOT NULL OR NOT EXISTS (SELECT 1 FROM current_target)
 GROUP BY COALESCE(n.label, c.topic);

-- A row is the number of posts from one day with one outcome.
CREATE VIEW topic_daily AS
  WITH counted AS (
       SELECT day, label, abstained, other, COUNT(*) AS posts, SUM(score) AS score
         FROM classifications INDEXED BY classifications_counted
        WHERE model_id = (SELECT model_id FROM current_target)
          AND label_set_id = (SELECT label_set_id FROM current_target)
          AND fullname >= 't3' AND day IS NOT NULL
        GROUP BY day, label, abstained, other
        UNION ALL
       SELECT CAST(strftime('%s', substr(p.created_at, 1, 10)) AS INTEGER) / 86400 AS day, c.label, c.abstained, c.other, 1, c.score
         FROM classifications c INDEXED BY classifications_uncounted
        CROSS JOIN things p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.fullname >= 't3' AND c.day IS NULL)
SELECT date(c.day * 86400, 'unixepoch') AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label,
       SUM(c.posts) AS posts,
       SUM(c.score) / SUM(c.posts) AS mean_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM counted c
 GROUP BY c.day, CASE WHEN c.abstained THEN NULL ELSE c.label END,
          CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END;

-- A row is a label of a post's current text, from any model and any version of a label set. To select a label set:
-- `WHERE label_set = 'trial'`.
CREATE VIEW labeled_posts_all AS
SELECT p.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.number_format,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       p.subreddit,
       p.topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE l.label_name END AS label_name,
       c.score,
       c.margin,
       c.abstained,
       p.reddit_score,
       p.num_comments,
       p.created_at,
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome,
       substr(m.manifest_hash, 1, 12) AS model_hash
  FROM label_sets s
 CROSS JOIN models m
 CROSS JOIN classifications c NOT INDEXED ON c.model_id = m.id AND c.label_set_id = s.id
 CROSS JOIN things p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label
 WHERE c.fullname >= 't3';

-- A row is one label's score for one post, for any model and any version of a label set. An edited post's scores are
-- kept until the post is scored again.
CREATE VIEW post_scores_all AS
SELECT p.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.number_format,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       l.label,
       l.label_name,
       e.value AS score,
       substr(m.manifest_hash, 1, 12) AS model_hash
  FROM label_sets s
 CROSS JOIN models m
 CROSS JOIN packed_scores p ON p.model_id = m.id AND p.label_set_id = s.id
 CROSS JOIN json_each(p.scores) e
 CROSS JOIN labels l ON l.label_set_id = s.id AND l.position = e.key;
