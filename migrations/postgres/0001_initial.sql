-- The first schema. migrations/sqlite holds the same tables, columns and views.

-- What this database knows of itself. `author_key` is the key under which author names are hashed.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL
);
INSERT INTO meta VALUES ('author_key', replace(gen_random_uuid()::text, '-', ''));

-- One execution of one stage.
CREATE TABLE runs (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stage       TEXT NOT NULL,
    status      TEXT NOT NULL, -- running, done, partial, failed, stopped
    worker      TEXT NOT NULL, -- host and process
    started_at  TIMESTAMPTZ NOT NULL,
    finished_at TIMESTAMPTZ,
    counts      JSONB NOT NULL DEFAULT '{}', -- JSON object
    outcomes    JSONB NOT NULL DEFAULT '[]', -- JSON array, one entry a topic
    error       TEXT
);

-- A post as last seen.
CREATE TABLE posts (
    fullname     TEXT PRIMARY KEY NOT NULL,
    subreddit    TEXT NOT NULL,
    title        TEXT NOT NULL,
    selftext     TEXT NOT NULL,
    url          TEXT,
    permalink    TEXT,
    author       TEXT, -- hashed, unless asked for
    score        BIGINT,
    upvote_ratio DOUBLE PRECISION,
    num_comments BIGINT,
    flair        TEXT,
    over_18      BOOLEAN NOT NULL,
    is_self      BOOLEAN NOT NULL,
    source       TEXT NOT NULL,
    text_hash    BYTEA NOT NULL, -- 16 bytes: equal texts are scored once
    created_at   TIMESTAMPTZ NOT NULL,
    collected_at TIMESTAMPTZ NOT NULL, -- first seen
    updated_at   TIMESTAMPTZ NOT NULL, -- last seen
    removed_at   TIMESTAMPTZ
);
CREATE INDEX posts_created_at ON posts (created_at);
CREATE INDEX posts_text_hash ON posts (text_hash);

-- That a run saw a post, where on which listing, and its score then.
CREATE TABLE sightings (
    run_id   BIGINT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    topic    TEXT NOT NULL,
    fullname TEXT NOT NULL REFERENCES posts (fullname) ON DELETE CASCADE,
    listing  TEXT,
    rank     BIGINT,
    score    BIGINT,
    PRIMARY KEY (run_id, topic, fullname)
);
CREATE INDEX sightings_fullname ON sightings (fullname, run_id, topic);

-- How far a source was read.
CREATE TABLE watermarks (
    source            TEXT NOT NULL,
    topic             TEXT NOT NULL,
    subreddit         TEXT NOT NULL,
    listing           TEXT,
    after_cursor      TEXT, -- where the next page starts; NULL: read as far as asked
    newest_created_at TIMESTAMPTZ,
    run_id            BIGINT REFERENCES runs (id) ON DELETE SET NULL,
    updated_at        TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (source, topic, subreddit)
);

-- A model folder as used.
CREATE TABLE models (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           TEXT NOT NULL,
    kind           TEXT NOT NULL, -- nli, embedding
    manifest_hash  TEXT NOT NULL,
    precision      TEXT NOT NULL,
    tokenizer_hash TEXT NOT NULL,
    max_tokens     BIGINT NOT NULL,
    UNIQUE (manifest_hash, precision, max_tokens)
);

-- A versioned set of labels: a change of template, mode, threshold or labels makes another one.
CREATE TABLE label_sets (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL UNIQUE,
    template   TEXT NOT NULL,
    mode       TEXT NOT NULL,
    threshold  DOUBLE PRECISION NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);
CREATE TABLE labels (
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    position     BIGINT NOT NULL,
    slug         TEXT NOT NULL,
    label        TEXT NOT NULL,
    hypothesis   TEXT NOT NULL,
    descriptions JSONB NOT NULL DEFAULT '[]', -- JSON array of strings
    PRIMARY KEY (label_set_id, position),
    UNIQUE (label_set_id, slug)
);

-- What the views show: the model and label set of the latest classification.
CREATE TABLE current_target (
    only_row     BOOLEAN PRIMARY KEY NOT NULL DEFAULT TRUE CHECK (only_row),
    model_id     BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE
);

-- The texts that posts are compared with, as the model reads them.
CREATE TABLE hypotheses (
    id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash BYTEA NOT NULL UNIQUE, -- 16 bytes
    text TEXT NOT NULL
);

-- What a model said of a text and a hypothesis: computed once. Of an embedding model `entailment` is the
-- cosine of the two vectors.
CREATE TABLE pair_logits (
    model_id      BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    text_hash     BYTEA NOT NULL,
    hypothesis_id BIGINT NOT NULL REFERENCES hypotheses (id) ON DELETE CASCADE,
    entailment    REAL NOT NULL,
    contradiction REAL,
    neutral       REAL,
    PRIMARY KEY (model_id, text_hash, hypothesis_id)
);

-- The outcome for a post under a model and a label set.
CREATE TABLE classifications (
    fullname      TEXT NOT NULL REFERENCES posts (fullname) ON DELETE CASCADE,
    model_id      BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    label_set_id  BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    text_hash     BYTEA NOT NULL, -- of the text that was scored
    label         TEXT NOT NULL, -- slug of the best label
    score         DOUBLE PRECISION NOT NULL,
    margin        DOUBLE PRECISION NOT NULL, -- best less second best
    abstained     BOOLEAN NOT NULL, -- the best lies under the threshold: none of these
    mode          TEXT NOT NULL,
    run_id        BIGINT REFERENCES runs (id) ON DELETE SET NULL,
    classified_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (model_id, label_set_id, fullname)
);
CREATE INDEX classifications_fullname ON classifications (fullname);
CREATE INDEX classifications_run ON classifications (run_id);
CREATE TABLE label_scores (
    fullname     TEXT NOT NULL,
    model_id     BIGINT NOT NULL,
    label_set_id BIGINT NOT NULL,
    position     BIGINT NOT NULL, -- of the label in its set
    score        DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (model_id, label_set_id, fullname, position),
    FOREIGN KEY (model_id, label_set_id, fullname)
        REFERENCES classifications (model_id, label_set_id, fullname) ON DELETE CASCADE
);

-- A worker's claim until a time. Its id is the fencing token: it grows and is never used again, and whoever
-- writes must hold its row. Who takes an expired claim over deletes the row, which returns its posts to the
-- backlog; a late writer then finds none, and writes nothing.
CREATE TABLE leases (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker     TEXT NOT NULL,
    run_id     BIGINT REFERENCES runs (id) ON DELETE SET NULL,
    claimed_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL
);
CREATE INDEX leases_expires_at ON leases (expires_at);

-- Posts that wait for a classification, and who holds them.
CREATE TABLE backlog (
    model_id     BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE,
    fullname     TEXT NOT NULL REFERENCES posts (fullname) ON DELETE CASCADE,
    lease_id     BIGINT REFERENCES leases (id) ON DELETE SET NULL,
    attempts     BIGINT NOT NULL DEFAULT 0, -- that failed
    error        TEXT, -- of the last failed attempt
    PRIMARY KEY (model_id, label_set_id, fullname)
);
CREATE INDEX backlog_claimable ON backlog (model_id, label_set_id, attempts, fullname) WHERE lease_id IS NULL;
CREATE INDEX backlog_lease ON backlog (lease_id) WHERE lease_id IS NOT NULL;
CREATE INDEX backlog_fullname ON backlog (fullname);

-- One row a post, under the current model and label set. `topic` is what it was last collected for.
-- Unlabelled posts, and those whose text changed since, have NULL in the columns of the label.
CREATE VIEW labeled_posts AS
SELECT p.fullname,
       p.subreddit,
       (SELECT s.topic FROM sightings s WHERE s.fullname = p.fullname
         ORDER BY s.run_id DESC, s.topic LIMIT 1) AS topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE l.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       c.score,
       c.margin,
       c.abstained,
       p.score AS post_score,
       p.num_comments,
       p.created_at,
       c.classified_at
  FROM posts p
  LEFT JOIN current_target t ON TRUE
  LEFT JOIN classifications c
    ON c.model_id = t.model_id AND c.label_set_id = t.label_set_id AND c.fullname = p.fullname
   AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;

-- Every score under the current model and label set, by name.
CREATE VIEW post_scores AS
SELECT s.fullname, l.slug AS label_topic, l.label, s.score
  FROM current_target t
  JOIN label_scores s ON s.model_id = t.model_id AND s.label_set_id = t.label_set_id
  JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position;

-- For each topic: how often the label agrees with what the post was collected for.
CREATE VIEW topic_agreement AS
SELECT topic,
       COUNT(*) AS posts,
       COUNT(classified_at) AS labelled,
       CAST(SUM(CASE WHEN label_topic = topic THEN 1 ELSE 0 END) AS BIGINT) AS agreed,
       1.0::double precision * SUM(CASE WHEN label_topic = topic THEN 1 ELSE 0 END) / NULLIF(COUNT(classified_at), 0) AS agreement
  FROM labeled_posts
 WHERE topic IS NOT NULL
 GROUP BY topic;

-- Posts a day and label.
CREATE VIEW topic_daily AS
SELECT (created_at AT TIME ZONE 'UTC')::date AS day, label_topic, COUNT(*) AS posts, AVG(score) AS mean_score
  FROM labeled_posts
 WHERE classified_at IS NOT NULL
 GROUP BY (created_at AT TIME ZONE 'UTC')::date, label_topic;

-- Posts whose label could as well be another one, the closest calls first.
CREATE VIEW uncertain_posts AS
SELECT * FROM labeled_posts WHERE margin < 0.2 OR abstained ORDER BY margin, fullname;
