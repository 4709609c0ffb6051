-- The tables, triggers and views of a topicmill database on PostgreSQL. migrations/sqlite has the same for SQLite.
--
-- `topicmill sql --schema` prints the comments: the first paragraph above a table or view
-- describes a row, and the comment after a column describes its values. In a view, this comment starts with the type.
-- Other paragraphs and comments are only for readers of this file.
--
-- Until the first release, this file is edited in place, and databases from an earlier build are rejected.

-- A time that programs can read: PostgreSQL also has infinite times, and years up to 294276.
CREATE DOMAIN topicmill_time AS TIMESTAMPTZ
    CHECK (VALUE >= '0001-01-01 00:00:00+00' AND VALUE < '10000-01-01 00:00:00+00');

-- A row is a property of this database, for topicmill's own use.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY, -- such as `author_key`, the key with which author names are hashed
    value TEXT NOT NULL -- its value
);
-- The version of the rule that builds a post's text.
INSERT INTO meta VALUES ('text_rule', '1');
INSERT INTO meta VALUES ('author_key', replace(gen_random_uuid()::text, '-', ''));

-- Runs and schedules

-- A row is a scheduled run. A schedule has at most one row for each due time, to prevent a run from starting twice.
CREATE TABLE scheduled_runs (
    id            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- key
    schedule      TEXT NOT NULL, -- the name of the schedule
    due_at        topicmill_time NOT NULL, -- when the run was due
    status        TEXT NOT NULL, -- `running`, `done`, `partial`, `failed`, `stopped` or `skipped`
    worker        TEXT, -- the host and process that last claimed it
    fencing_token BIGINT NOT NULL DEFAULT 0, -- increases when a process claims the run; only the holder of the latest token may write
    lease_until   topicmill_time, -- after this time, another process may take over the run
    started_at    topicmill_time, -- when a process first claimed it
    finished_at   topicmill_time, -- when it ended
    outcomes      JSONB NOT NULL DEFAULT '[]', -- an array with one entry for each stage that ended: `stage`, `status`, `exit`, `secs` and `error`
    error         TEXT, -- why it failed or was skipped
    UNIQUE (schedule, due_at)
);
CREATE UNIQUE INDEX scheduled_runs_running ON scheduled_runs (schedule) WHERE status = 'running';

-- A row is one execution of one stage.
CREATE TABLE runs (
    id               BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- key
    stage            TEXT NOT NULL, -- `collect`, `import`, `classify` or `purge`
    status           TEXT NOT NULL, -- `running`, `done`, `partial`, `failed`, `stopped` or `crashed`
    worker           TEXT NOT NULL, -- host and process
    started_at       topicmill_time NOT NULL, -- when it started
    finished_at      topicmill_time, -- when it ended
    heartbeat_at     topicmill_time, -- its last heartbeat
    counts           JSONB NOT NULL DEFAULT '{}', -- counts of its work; for `classify`, also the settings and the time per stage
    outcomes         JSONB NOT NULL DEFAULT '[]', -- an array with one entry for each topic
    error            TEXT, -- why it failed
    scheduled_run_id BIGINT REFERENCES scheduled_runs (id) ON DELETE SET NULL -- the scheduled run that it belongs to
);
CREATE INDEX runs_of_scheduled_runs ON runs (scheduled_run_id) WHERE scheduled_run_id IS NOT NULL;

-- Posts and comments

-- A row is a post or a comment as its source last returned it. Most people read the views `posts` and `comments`.
--
-- The primary key includes all columns that the views and the search for unlabelled posts read, except the text.
CREATE TABLE things (
    fullname         TEXT NOT NULL, -- key: Reddit's name for it, `t3_…` for a post and `t1_…` for a comment
    kind             TEXT NOT NULL DEFAULT 'post' CHECK (kind = CASE substr(fullname, 1, 3) WHEN 't1_' THEN 'comment' ELSE 'post' END), -- `post` or `comment`
    subreddit        TEXT NOT NULL, -- where it was posted
    topic            TEXT, -- the topic that it was last collected for, or that an imported file names
    title            TEXT NOT NULL, -- a post's title; for a comment, that of its post if `collect.comment_text` includes it; empty after retention
    selftext         TEXT NOT NULL, -- its body, or the body of the post that a crosspost shows; empty for links and after retention
    url              TEXT, -- what a link post points to
    permalink        TEXT, -- its path on Reddit, which begins with a slash
    author           TEXT, -- `u_` and a hash of the author's name, or the name if `collect.store_author` is set
    reddit_score     BIGINT, -- Reddit's score: upvotes minus downvotes
    reddit_score_is_placeholder BOOLEAN NOT NULL DEFAULT FALSE, -- true if an archive or dump captured Reddit's score right after the post was made
    upvote_ratio     DOUBLE PRECISION, -- share of upvotes, 0 to 1
    num_comments     BIGINT, -- number of comments
    flair            TEXT, -- the text of the link flair
    over_18          BOOLEAN NOT NULL, -- true if marked not safe for work
    is_self          BOOLEAN NOT NULL, -- true for a text post or a comment, false for a link
    post             TEXT, -- the fullname of a comment's post; NULL for posts
    parent           TEXT, -- the fullname of what a comment replies to: a comment or the post; NULL for posts
    is_submitter     BOOLEAN, -- true if a comment is by the author of its post; NULL for posts
    crosspost_parent TEXT, -- the fullname of the post that a crosspost shows
    source           TEXT NOT NULL, -- where it came from: `reddit`, `sample`, `arctic-shift` or `import`
    text_hash        BYTEA NOT NULL, -- the first 16 bytes of the SHA-256 of its text as models read it (docs/label.md); equal texts are scored once
    created_at       topicmill_time NOT NULL, -- when it was posted
    collected_at     topicmill_time NOT NULL, -- when it was first stored
    updated_at       topicmill_time NOT NULL, -- when its source last returned it
    checked_at       topicmill_time, -- when Reddit last returned it; NULL if it has not been checked or has been removed
    archive_checked_at topicmill_time, -- when it was last compared with Arctic Shift's second reading; NULL if it has not
    removed_at       topicmill_time, -- when Reddit first returned it as removed or deleted
    text_purged_at   topicmill_time, -- when retention deleted its title, body, links and author; NULL if they are still stored
    context_purged   BOOLEAN NOT NULL DEFAULT FALSE, -- true if its text was read with the title of its post, which has been purged or deleted by retention since: its labels stay, and it is labelled again when a source returns it
    has_text         BOOLEAN NOT NULL GENERATED ALWAYS AS (text_purged_at IS NULL AND NOT context_purged AND text_hash <> '\xe3b0c44298fc1c149afbf4c8996fb924') STORED, -- false if there is nothing to label: the text was purged, or Reddit replaced it with a placeholder such as `[removed]`
    PRIMARY KEY (fullname) INCLUDE (kind, text_hash, created_at, topic, has_text, subreddit, source)
);
CREATE INDEX things_created_at ON things (kind, created_at);
CREATE INDEX things_checked_at ON things (checked_at, fullname);
CREATE INDEX things_archive_checked_at ON things (archive_checked_at, fullname);
CREATE INDEX things_with_text ON things (collected_at, kind) WHERE text_purged_at IS NULL;
CREATE INDEX things_without_text ON things (text_purged_at) WHERE text_purged_at IS NOT NULL;
CREATE INDEX things_crosspost_parent ON things (crosspost_parent) WHERE crosspost_parent IS NOT NULL;
CREATE INDEX things_with_title ON things (post) WHERE post IS NOT NULL AND title <> '';
-- No statistics on text columns, because ANALYZE would store parts of their text, which would outlive a purge.
ALTER TABLE things
    ALTER COLUMN title SET STATISTICS 0, ALTER COLUMN selftext SET STATISTICS 0,
    ALTER COLUMN url SET STATISTICS 0, ALTER COLUMN permalink SET STATISTICS 0,
    ALTER COLUMN author SET STATISTICS 0, ALTER COLUMN flair SET STATISTICS 0;
-- Statistics on the number of days, which the planner cannot estimate from the times of posts. Without them, the
-- planner sorts all labels for `topic_daily`. `INTERVAL '0'` avoids a time zone lookup for each post. Versions before
-- 14 have no statistics on expressions.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 140000 THEN
        EXECUTE 'CREATE STATISTICS things_day ON ((created_at AT TIME ZONE INTERVAL ''0'')::date) FROM things';
    END IF;
END $$;

-- A row records on which day runs saw a post for a topic, so that a year of hourly runs has few rows.
--
-- There are no foreign keys, because checking them took half the time of an import. A sighting is written in the same
-- transaction as its post. A trigger below deletes the sightings of a deleted post.
CREATE TABLE sightings (
    fullname     TEXT NOT NULL, -- the post
    topic        TEXT NOT NULL, -- the topic that it was collected for
    day          TEXT NOT NULL, -- the day (UTC), such as 2026-11-21
    times_seen   BIGINT NOT NULL, -- the number of runs that saw it
    run_id       BIGINT NOT NULL, -- the last of these runs
    listing      TEXT, -- the listing where it was last seen: `hot`, `new`, `top` or `rising`; NULL for files
    best_rank    BIGINT, -- its best position in a listing, from 0
    reddit_score BIGINT, -- Reddit's score when it was last seen: upvotes minus downvotes
    PRIMARY KEY (fullname, topic, day)
);

-- A row is a watermark: how far a subreddit was read.
CREATE TABLE watermarks (
    source            TEXT NOT NULL, -- the source
    topic             TEXT NOT NULL, -- the topic
    subreddit         TEXT NOT NULL, -- the subreddit; with `/comments`, its comments
    listing           TEXT, -- the listing
    after_cursor      TEXT, -- where the next page starts; NULL if everything requested was read
    newest_created_at topicmill_time, -- the time of the newest post read
    read_from         topicmill_time, -- from an archive: the posts since this time were read
    run_id            BIGINT REFERENCES runs (id) ON DELETE SET NULL, -- the last run that read it
    updated_at        topicmill_time NOT NULL, -- when this row last changed
    PRIMARY KEY (source, topic, subreddit)
);

-- A row is a gap: a time range in which some of a subreddit's posts could not be fetched, because Reddit listed too
-- few, because a run of `collect --since` did not finish, or because a later run did not read back to that time range.
CREATE TABLE gaps (
    source    TEXT NOT NULL, -- the source
    topic     TEXT NOT NULL, -- the topic
    subreddit TEXT NOT NULL, -- the subreddit; with `/comments`, its comments
    from_at   topicmill_time NOT NULL, -- the time of the newest post stored before the gap, or `--since`
    until_at  topicmill_time NOT NULL, -- the time of the oldest post listed after the gap, or `--until`
    run_id    BIGINT REFERENCES runs (id) ON DELETE SET NULL, -- the run that found the gap
    PRIMARY KEY (source, topic, subreddit, from_at)
);
CREATE INDEX gaps_run ON gaps (run_id) WHERE run_id IS NOT NULL;

-- A row is a part of the sampling frame: from a time on, only posts with these keywords were stored for a topic.
CREATE TABLE topic_keywords (
    topic    TEXT NOT NULL, -- the topic
    since    topicmill_time NOT NULL, -- the start of the first run with these keywords
    keywords JSONB NOT NULL, -- the topic's `match` list; empty if all posts were stored
    PRIMARY KEY (topic, since)
);

-- A row is the progress of importing a dump.
--
-- The row is written in the same transaction as the posts that it counts, so that a crashed import continues after the
-- last stored block.
CREATE TABLE imports (
    file        TEXT NOT NULL, -- the size of the file and the hash of its first MiB
    selection   TEXT NOT NULL, -- a hash of the filters and topics of the import
    name        TEXT NOT NULL, -- the path as passed on the command line
    byte_offset BIGINT NOT NULL, -- bytes read, after decompression
    rows_read   BIGINT NOT NULL, -- rows read
    left_out    BIGINT NOT NULL, -- rows excluded by the filters
    posts       BIGINT NOT NULL, -- rows stored
    rejected    BIGINT NOT NULL, -- rows that are not complete posts
    run_id      BIGINT REFERENCES runs (id) ON DELETE SET NULL, -- the last run that read it
    updated_at  topicmill_time NOT NULL, -- when this row last changed
    finished_at topicmill_time, -- when the end of the file was reached; NULL if it has not been
    PRIMARY KEY (file, selection)
);

-- A row is a purged post's tombstone, which prevents the post from being stored again. Nothing else is kept.
CREATE TABLE tombstones (
    fullname  TEXT PRIMARY KEY, -- the post
    reason    TEXT NOT NULL, -- `deleted` by its author, `removed` by moderators, `missing` on Reddit, `requested` by you, or `shown`: the post was a crosspost of a purged post
    purged_at topicmill_time NOT NULL, -- when it was purged
    run_id    BIGINT REFERENCES runs (id) ON DELETE SET NULL -- the run that purged it
);
CREATE INDEX tombstones_run ON tombstones (run_id) WHERE run_id IS NOT NULL;

-- A row is the rate-limit state of a client id, shared by all processes that collect into this database.
CREATE TABLE quotas (
    id         TEXT PRIMARY KEY, -- a hash of the client id and the API's URL
    next_at    BIGINT NOT NULL, -- GCRA's theoretical arrival time for the next request, in microseconds since 1970
    held_until BIGINT NOT NULL -- no request is sent before this time, in microseconds since 1970
) WITH (fillfactor = 50); -- The row is updated for each request; free space allows HOT updates.

-- Models and labels

-- A row is a model in one configuration. A model with a shortlist from a small model has a separate row.
CREATE TABLE models (
    id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- key
    name           TEXT NOT NULL, -- the name of its folder; with a shortlist, also the small model and its settings
    kind           TEXT NOT NULL, -- `nli`, `embedding`, `gliclass` or `classifier`
    manifest_hash  TEXT NOT NULL, -- a hash of the files that determine its scores
    number_format  TEXT NOT NULL, -- the number format of its graph: `fp32`, `fp16`, `int8` or another name
    tokenizer_hash TEXT NOT NULL, -- a hash of its tokenizer
    max_tokens     BIGINT NOT NULL, -- the longest input, in tokens
    UNIQUE (manifest_hash, number_format, max_tokens)
);

-- A row is a version of a label set. Changing the template, mode, threshold, temperature, background, labels or fit
-- creates a new version.
CREATE TABLE label_sets (
    id                BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- key; later versions have larger ids
    name              TEXT NOT NULL, -- the name in the pipeline file; several versions may share it
    hash              TEXT NOT NULL UNIQUE, -- the version: a hash of the labels, template, mode, threshold, temperature, background and fit
    template          TEXT NOT NULL, -- the hypothesis template
    mode              TEXT NOT NULL, -- `single`, `multi` or, for a classifier, `raw`
    threshold         DOUBLE PRECISION NOT NULL, -- posts with a lower best score get no label
    temperature       DOUBLE PRECISION NOT NULL DEFAULT 1, -- the logits are divided by this before they become scores
    background        TEXT, -- the name and version of its background (docs/label.md); NULL without one
    background_topics JSONB, -- the complete background: its weight and topics
    fitted            JSONB, -- what `labels fit` learned, with the number of gold labels and their annotators; NULL if it was not fitted
    created_at        topicmill_time NOT NULL -- when the version was first used
);

-- A row is a label in a label set.
CREATE TABLE labels (
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE, -- the label set
    position     BIGINT NOT NULL, -- its position in the set, from 0
    label        TEXT NOT NULL, -- the label's slug, such as `climate`
    label_name   TEXT NOT NULL, -- the candidate label in words, such as `climate change`
    hypothesis   TEXT NOT NULL, -- the template with the label inserted
    descriptions JSONB NOT NULL DEFAULT '[]', -- additional descriptions, for embedding models: an array of strings
    PRIMARY KEY (label_set_id, position),
    UNIQUE (label_set_id, label)
);

-- The only row identifies the model and the label set that the views show.
CREATE TABLE current_target (
    only_row     BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row), -- key, always true
    model_id     BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE, -- the current model
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE -- the current label set
);

-- A row is a hypothesis that models compare with posts, or a label's texts. For a label with a learned vector
-- (docs/models.md), the text begins with an empty line and `A learned vector of:`.
CREATE TABLE hypotheses (
    id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- key
    hash BYTEA NOT NULL UNIQUE, -- the first 16 bytes of the SHA-256 of the text
    text TEXT NOT NULL -- the text
);

-- A row contains an NLI model's logits for a text and a hypothesis, a classifier's logit for a text and one of its
-- labels, or a GLiClass model's logit for a text and a label, given the other labels in its set. Logits are computed
-- once per text and shared by all posts with that text.
--
-- There are no foreign keys, because checking them took a third of the time to write labels. A trigger below deletes
-- the logits of a deleted model.
CREATE TABLE pair_logits (
    model_id      BIGINT NOT NULL, -- the model
    text_hash     BYTEA NOT NULL, -- the text, as in `things.text_hash`
    hypothesis_id BIGINT NOT NULL, -- the hypothesis
    entailment    REAL NOT NULL, -- the entailment logit; for a classifier or GLiClass model, the label's logit
    contradiction REAL, -- the logit that `multi` mode compares with entailment; NULL for a classifier or GLiClass model
    neutral       REAL, -- the logit of the third class, if the model has one
    PRIMARY KEY (model_id, text_hash, hypothesis_id)
);

-- A row is the embedding of a text. It is computed once and serves all label sets. A purge, an edit or retention
-- deletes it along with the text unless another labelled post has the same text.
CREATE TABLE text_vectors (
    model_id  BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE, -- the model
    text_hash BYTEA NOT NULL, -- the text, as in `things.text_hash`
    vector    BYTEA NOT NULL, -- a 32-bit float (the scale) and then a 16-bit integer for each dimension, all little-endian; scale × integers is a unit vector
    PRIMARY KEY (model_id, text_hash)
);
-- No statistics on vectors, because no query filters by them and the statistics would outlive a purge. EXTERNAL,
-- because vectors are not compressible.
ALTER TABLE text_vectors ALTER COLUMN vector SET STATISTICS 0;
ALTER TABLE text_vectors ALTER COLUMN vector SET STORAGE EXTERNAL;

-- A row is the embedding of a label and its descriptions, or a label's learned vector (docs/models.md).
CREATE TABLE label_vectors (
    model_id      BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE, -- the model
    hypothesis_id BIGINT NOT NULL REFERENCES hypotheses (id) ON DELETE CASCADE, -- the label's texts
    vector        BYTEA NOT NULL, -- a 32-bit float for each dimension, little-endian; a unit vector
    PRIMARY KEY (model_id, hypothesis_id)
);

-- A row is a post's label from a model and a label set.
--
-- The primary key includes all columns that the views read. `day` and `topic` are copied from the post, so that the
-- views that compute counts need no join and can read `classifications_counted` in group order. Days precede labels in
-- that index, because labels are written roughly in day order.
CREATE TABLE classifications (
    fullname      TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE, -- the post
    model_id      BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE, -- the model
    label_set_id  BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE, -- the label set
    text_hash     BYTEA NOT NULL, -- the text that was scored; if `things.text_hash` differs, the post has been edited since
    label         TEXT NOT NULL, -- the best label's slug
    score         DOUBLE PRECISION NOT NULL, -- its score, 0 to 1 except in `raw` mode
    margin        DOUBLE PRECISION NOT NULL, -- the best score minus the second best; `other` counts like a label
    abstained     BOOLEAN NOT NULL, -- true if the post got no label
    other         BOOLEAN NOT NULL DEFAULT FALSE, -- true if the background fits better than any label; `abstained` is then also true
    mode          TEXT NOT NULL, -- `single`, `multi` or, for a classifier, `raw`
    run_id        BIGINT REFERENCES runs (id) ON DELETE SET NULL, -- the run that wrote it
    classified_at topicmill_time NOT NULL, -- when it was written
    day           BIGINT, -- the post's day, for the views that compute counts: whole days since 1970 (UTC); NULL if the text has changed since
    topic         TEXT, -- `things.topic`, for the same views; unused where `day` is NULL
    PRIMARY KEY (model_id, label_set_id, fullname) INCLUDE (text_hash, label, score, abstained, other)
);
CREATE INDEX classifications_fullname ON classifications (fullname);
CREATE INDEX classifications_run ON classifications (run_id);
-- For lookups by text. Only queries that repeat the condition use it.
CREATE INDEX classifications_text ON classifications (text_hash, fullname) WHERE text_hash >= '';
-- Serves `uncertain_posts`: same condition, same order.
CREATE INDEX classifications_uncertain ON classifications (model_id, label_set_id, margin, fullname)
    WHERE margin < 0.2 OR abstained;
CREATE INDEX classifications_counted ON classifications (model_id, label_set_id, day, label, abstained, other, topic)
    INCLUDE (score) WHERE day IS NOT NULL AND fullname >= 't3';
CREATE INDEX classifications_uncounted ON classifications (model_id, label_set_id, fullname) WHERE day IS NULL;

-- A row contains all scores for a classification. The `label_scores` view has one row per score.
CREATE TABLE packed_scores (
    fullname     TEXT NOT NULL, -- the post
    model_id     BIGINT NOT NULL, -- the model
    label_set_id BIGINT NOT NULL, -- the label set
    scores       DOUBLE PRECISION[] NOT NULL, -- one score for each label, in the order of `labels.position`
    PRIMARY KEY (model_id, label_set_id, fullname),
    FOREIGN KEY (model_id, label_set_id, fullname)
        REFERENCES classifications (model_id, label_set_id, fullname) ON DELETE CASCADE
);

-- A row is a gold label: an annotator's answer about a post, from `serve --review` or `labels gold import`. It is
-- deleted when the post is purged but kept when retention deletes the text.
CREATE TABLE gold (
    fullname         TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE, -- the post
    annotator        TEXT NOT NULL, -- the annotator's name; only each annotator's latest answer about a post is kept
    label            TEXT, -- the right label's slug; NULL if none of the offered labels fits
    label_set_id     BIGINT REFERENCES label_sets (id) ON DELETE SET NULL, -- the label set that the offered labels are from
    text_hash        BYTEA NOT NULL CHECK (octet_length(text_hash) = 16), -- the text that the answer is about; if `things.text_hash` differs, the post has been edited since
    chosen           TEXT NOT NULL CHECK (chosen IN ('random', 'closest', 'filter', 'import')), -- how the post was selected: `random`, `closest` (its two best labels are close), `filter` (by label or score on the review page), or `import` (it was in an imported file)
    in_random_sample BOOLEAN NOT NULL DEFAULT FALSE, -- true if the post belongs to the random sample: drawn at random, or skipped by the draw because it already had an answer
    source           TEXT NOT NULL CHECK (source IN ('review', 'import', 'label-studio')), -- where the answer came from: `review`, `import` or `label-studio`
    answered_at      topicmill_time NOT NULL, -- when it was given
    note             TEXT, -- the annotator's note about the answer; NULL if there is none
    PRIMARY KEY (fullname, annotator)
);

-- A row is the label that a post gets from a fit without the post's answer. With these labels, the answers that a label
-- set was fitted to can measure it.
CREATE TABLE cross_fitted (
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE, -- the fitted label set
    fullname     TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE, -- the post
    text_hash    BYTEA NOT NULL, -- the text that was scored; if `things.text_hash` differs, the post has been edited since
    label        TEXT NOT NULL, -- the best label's slug
    score        DOUBLE PRECISION NOT NULL, -- its score
    abstained    BOOLEAN NOT NULL, -- true if the post got no label
    PRIMARY KEY (label_set_id, fullname)
);
CREATE INDEX cross_fitted_fullname ON cross_fitted (fullname);

-- The backlog

-- A row is a lease: a worker's claim on posts in the backlog, with an expiry time.
--
-- A worker that reclaims an expired lease deletes the row, which returns the posts to the backlog. The previous holder
-- then finds no row and writes nothing.
CREATE TABLE leases (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- key, and the fencing token: a worker may write only while this row exists
    worker     TEXT NOT NULL, -- host and process
    run_id     BIGINT REFERENCES runs (id) ON DELETE SET NULL, -- the run
    claimed_at topicmill_time NOT NULL, -- when the worker claimed the posts
    expires_at topicmill_time NOT NULL -- after this time, another worker may take over the posts
);
CREATE INDEX leases_expires_at ON leases (expires_at);

-- A row is a post that is waiting for a label. Posts that crashed fewer workers are claimed first.
CREATE TABLE backlog (
    model_id     BIGINT NOT NULL REFERENCES models (id) ON DELETE CASCADE, -- the model
    label_set_id BIGINT NOT NULL REFERENCES label_sets (id) ON DELETE CASCADE, -- the label set
    fullname     TEXT NOT NULL REFERENCES things (fullname) ON DELETE CASCADE, -- the post
    lease_id     BIGINT REFERENCES leases (id) ON DELETE SET NULL, -- the lease of the worker that claimed the post
    attempts     BIGINT NOT NULL DEFAULT 0, -- how often it failed
    crashes      BIGINT NOT NULL DEFAULT 0, -- how often a worker crashed, or its lease expired, while it held the post
    error        TEXT, -- the error from the last failure
    PRIMARY KEY (model_id, label_set_id, fullname)
);
CREATE INDEX backlog_claimable ON backlog (model_id, label_set_id, crashes, attempts, fullname) WHERE lease_id IS NULL;
CREATE INDEX backlog_lease ON backlog (lease_id) WHERE lease_id IS NOT NULL;
CREATE INDEX backlog_fullname ON backlog (fullname);

-- Statistics

-- Updates the planner's statistics of a table and of all tables that changed much. Only a table's owner may analyse it,
-- so the function runs with the owner's privileges. Waits only briefly for locks: the next call follows soon.
CREATE FUNCTION topicmill_analyze(always TEXT DEFAULT NULL) RETURNS void LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '1s' AS $$
DECLARE changed TEXT;
BEGIN
    FOR changed IN
        SELECT relname FROM pg_stat_user_tables
         WHERE schemaname = current_schema()
           AND (relname = always OR n_mod_since_analyze > 1000 AND n_mod_since_analyze > n_live_tup / 10)
    LOOP
        BEGIN
            EXECUTE format('ANALYZE %I', changed);
        EXCEPTION WHEN lock_not_available THEN
            NULL; -- being analysed
        END;
    END LOOP;
END $$;

-- Triggers
--
-- Two of the trigger functions run with the owner's privileges and search path, so that changing a post needs no
-- privileges on dependent tables. These two disable sequential scans, because plans are cached per connection: a
-- plan made while a table was small would read the whole table for each row.

-- Notifies workers that are waiting for new posts.
CREATE FUNCTION topicmill_notify_posts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('topicmill_posts', '');
    RETURN NULL;
END $$;
CREATE TRIGGER things_notify AFTER INSERT OR UPDATE OF text_hash ON things
    FOR EACH STATEMENT EXECUTE FUNCTION topicmill_notify_posts();

-- Deletes the sightings of a deleted post.
CREATE FUNCTION topicmill_forget_sightings() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    DELETE FROM sightings WHERE fullname = OLD.fullname;
    RETURN NULL;
END $$;
CREATE TRIGGER things_forget_sightings AFTER DELETE ON things
    FOR EACH ROW EXECUTE FUNCTION topicmill_forget_sightings();

-- Deletes the logits of a deleted model.
CREATE FUNCTION topicmill_forget_logits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM pair_logits WHERE model_id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER models_forget_logits AFTER DELETE ON models
    FOR EACH ROW EXECUTE FUNCTION topicmill_forget_logits();

-- Copies changes in a post to the `day` and `topic` of its labels.
CREATE FUNCTION topicmill_change_labels() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    UPDATE classifications
       SET day = CASE WHEN text_hash = NEW.text_hash
                      THEN (NEW.created_at AT TIME ZONE INTERVAL '0')::date - DATE '1970-01-01' END,
           topic = NEW.topic
     WHERE fullname = NEW.fullname;
    RETURN NULL;
END $$;
CREATE TRIGGER things_change_labels AFTER UPDATE OF text_hash, created_at, topic ON things
    FOR EACH ROW WHEN (OLD.text_hash IS DISTINCT FROM NEW.text_hash OR OLD.created_at IS DISTINCT FROM NEW.created_at
                       OR OLD.topic IS DISTINCT FROM NEW.topic)
    EXECUTE FUNCTION topicmill_change_labels();

-- Views
--
-- Hashes are compared with `CASE WHEN … = … THEN TRUE ELSE FALSE END`. With a plain comparison, the planner would
-- assume that fullname and hash are independent, estimate a single row, and choose a bad plan.

-- A row is a post.
CREATE VIEW posts AS
SELECT fullname, -- text: Reddit's name for the post
       subreddit, -- text: where it was posted
       topic, -- text or NULL: the topic that it was last collected for, or that an imported file names
       title, -- text: its title; empty after retention
       selftext, -- text: its body, or the body of the post that a crosspost shows; empty for links and after retention
       url, -- text or NULL: what a link post points to
       permalink, -- text or NULL: its path on Reddit, which begins with a slash
       author, -- text or NULL: `u_` and a hash of the author's name, or the name if `collect.store_author` is set
       reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       reddit_score_is_placeholder, -- boolean: true if an archive or dump captured Reddit's score right after the post was made
       upvote_ratio, -- number or NULL: share of upvotes, 0 to 1
       num_comments, -- integer or NULL: number of comments
       flair, -- text or NULL: the text of the link flair
       over_18, -- boolean: true if marked not safe for work
       is_self, -- boolean: true for a text post, false for a link
       crosspost_parent, -- text or NULL: the fullname of the post that a crosspost shows
       source, -- text: where it came from: `reddit`, `sample`, `arctic-shift` or `import`
       created_at, -- time: when it was posted
       collected_at, -- time: when it was first stored
       updated_at, -- time: when its source last returned it
       checked_at, -- time or NULL: when Reddit last returned it; NULL if it has not been checked or has been removed
       archive_checked_at, -- time or NULL: when it was last compared with Arctic Shift's second reading; NULL if it has not
       removed_at, -- time or NULL: when Reddit first returned it as removed or deleted
       text_purged_at, -- time or NULL: when retention deleted its title, body, links and author; NULL if they are still stored
       has_text -- boolean: false if there is nothing to label: the text was purged, or Reddit replaced it with a placeholder such as `[removed]`
  FROM things WHERE kind = 'post';

-- A row is a comment.
CREATE VIEW comments AS
SELECT fullname, -- text: Reddit's name for the comment
       post, -- text or NULL: the fullname of its post
       parent, -- text or NULL: the fullname of what it replies to: a comment or the post
       subreddit, -- text: where it was posted
       topic, -- text or NULL: the topic that it was last collected for, or that an imported file names
       selftext AS body, -- text: its text; empty after retention
       permalink, -- text or NULL: its path on Reddit, which begins with a slash
       author, -- text or NULL: `u_` and a hash of the author's name, or the name if `collect.store_author` is set
       reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       reddit_score_is_placeholder, -- boolean: true if an archive or dump captured Reddit's score right after the post was made
       is_submitter, -- boolean or NULL: true if it is by the author of its post
       source, -- text: where it came from: `reddit`, `sample`, `arctic-shift` or `import`
       created_at, -- time: when it was posted
       collected_at, -- time: when it was first stored
       updated_at, -- time: when its source last returned it
       checked_at, -- time or NULL: when Reddit last returned it; NULL if it has not been checked or has been removed
       archive_checked_at, -- time or NULL: when it was last compared with Arctic Shift's second reading; NULL if it has not
       removed_at, -- time or NULL: when Reddit first returned it as removed or deleted
       text_purged_at, -- time or NULL: when retention deleted its title, body, links and author; NULL if they are still stored
       context_purged, -- boolean: true if its text was read with the title of its post, which has been purged or deleted by retention since: its labels stay, and it is labelled again when a source returns it
       has_text -- boolean: false if there is nothing to label: the text was purged, or Reddit replaced it with a placeholder such as `[removed]`
  FROM things WHERE kind = 'comment';

-- A row is a post or a comment with its current label. If its current text has no label, the label columns are NULL.
CREATE VIEW labeled_things AS
SELECT p.fullname, -- text: Reddit's name for the post or comment
       p.kind, -- text: `post` or `comment`
       p.post, -- text or NULL: the fullname of a comment's post
       p.parent, -- text or NULL: the fullname of what a comment replies to
       p.subreddit, -- text: where it was posted
       p.topic, -- text or NULL: the topic that it was last collected for
       p.title, -- text: its title; for a comment, that of its post if the label was read from it
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, -- text or NULL: the label's slug; NULL if the model abstained
       CASE WHEN c.abstained THEN NULL ELSE l.label_name END AS label_name, -- text or NULL: the label in words, such as `climate change`; NULL if the model abstained
       c.score, -- number or NULL: the best label's score, 0 to 1 except in `raw` mode
       c.margin, -- number or NULL: the best score minus the second best; `other` counts like a label
       c.abstained, -- boolean or NULL: true if the post got no label: `outcome` is `other` or `unsure`
       p.reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       p.num_comments, -- integer or NULL: number of comments
       p.created_at, -- time: when it was posted
       c.classified_at, -- time or NULL: when it got its label
       p.selftext, -- text: its body; empty for links
       p.url, -- text or NULL: what a link post points to
       p.permalink, -- text or NULL: its path on Reddit, which begins with a slash
       p.author, -- text or NULL: its author, hashed unless `collect.store_author` is set
       p.source, -- text: where it came from: `reddit`, `sample`, `arctic-shift` or `import`
       p.crosspost_parent, -- text or NULL: the fullname of the post that a crosspost shows
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome, -- text or NULL: its label's slug, or `other` or `unsure` (docs/label.md); NULL without a label
       (SELECT COALESCE(g.label, 'other')
          FROM gold g WHERE g.fullname = p.fullname AND g.text_hash = p.text_hash
         GROUP BY COALESCE(g.label, 'other')
        HAVING 2 * COUNT(*) > (SELECT COUNT(*) FROM gold a WHERE a.fullname = p.fullname AND a.text_hash = p.text_hash)) AS gold, -- text or NULL: the gold label: the slug that more than half of the annotators of its current text chose, or `other` if none of the labels fits; NULL if there is none
       (SELECT string_agg(g.annotator, ', ' ORDER BY g.annotator)
          FROM gold g WHERE g.fullname = p.fullname AND g.text_hash = p.text_hash) AS gold_by, -- text or NULL: the annotators of its current text
       p.context_purged -- boolean: true if its text was read with the title of its post, which has been purged or deleted by retention since: its labels stay, and it is labelled again when a source returns it
  FROM things p
  LEFT JOIN classifications c
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label;

-- A row is a post with its current label. If its current text has no label, the label columns are NULL.
CREATE VIEW labeled_posts AS
SELECT fullname, -- text: Reddit's name for the post
       subreddit, -- text: where it was posted
       topic, -- text or NULL: the topic that it was last collected for
       title, -- text: its title
       label, -- text or NULL: the label's slug; NULL if the model abstained
       label_name, -- text or NULL: the label in words, such as `climate change`; NULL if the model abstained
       score, -- number or NULL: the best label's score, 0 to 1 except in `raw` mode
       margin, -- number or NULL: the best score minus the second best; `other` counts like a label
       abstained, -- boolean or NULL: true if the post got no label: `outcome` is `other` or `unsure`
       reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       num_comments, -- integer or NULL: number of comments
       created_at, -- time: when it was posted
       classified_at, -- time or NULL: when it got its label
       selftext, -- text: its body; empty for links
       url, -- text or NULL: what a link post points to
       permalink, -- text or NULL: its path on Reddit, which begins with a slash
       author, -- text or NULL: its author, hashed unless `collect.store_author` is set
       source, -- text: where it came from: `reddit`, `sample`, `arctic-shift` or `import`
       crosspost_parent, -- text or NULL: the fullname of the post that a crosspost shows
       outcome, -- text or NULL: its label's slug, or `other` or `unsure` (docs/label.md); NULL without a label
       gold, -- text or NULL: the gold label: the slug that more than half of the annotators of its current text chose, or `other` if none of the labels fits; NULL if there is none
       gold_by -- text or NULL: the annotators of its current text
  FROM labeled_things WHERE kind = 'post';

-- A row is a comment with its current label. If its current text has no label, the label columns are NULL.
CREATE VIEW labeled_comments AS
SELECT fullname, -- text: Reddit's name for the comment
       post, -- text or NULL: the fullname of its post
       parent, -- text or NULL: the fullname of what it replies to: a comment or the post
       subreddit, -- text: where it was posted
       topic, -- text or NULL: the topic that it was last collected for
       (SELECT p.title FROM things p WHERE p.fullname = t.post) AS post_title, -- text or NULL: the title of its post; NULL if the post is not stored
       selftext AS body, -- text: its text
       label, -- text or NULL: the label's slug; NULL if the model abstained
       label_name, -- text or NULL: the label in words, such as `climate change`; NULL if the model abstained
       score, -- number or NULL: the best label's score, 0 to 1 except in `raw` mode
       margin, -- number or NULL: the best score minus the second best; `other` counts like a label
       abstained, -- boolean or NULL: true if the post got no label: `outcome` is `other` or `unsure`
       reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       created_at, -- time: when it was posted
       classified_at, -- time or NULL: when it got its label
       permalink, -- text or NULL: its path on Reddit, which begins with a slash
       author, -- text or NULL: its author, hashed unless `collect.store_author` is set
       source, -- text: where it came from: `reddit`, `sample`, `arctic-shift` or `import`
       outcome, -- text or NULL: its label's slug, or `other` or `unsure` (docs/label.md); NULL without a label
       gold, -- text or NULL: the gold label: the slug that more than half of the annotators of its current text chose, or `other` if none of the labels fits; NULL if there is none
       gold_by, -- text or NULL: the annotators of its current text
       context_purged -- boolean: true if its text was read with the title of its post, which has been purged or deleted by retention since: its labels stay, and it is labelled again when a source returns it
  FROM labeled_things t WHERE kind = 'comment';

-- A row is a labelled post whose two best scores differ by less than 0.2, or whose outcome is `unsure`. The closest
-- calls come first. A post that is clearly `other` is not included.
CREATE VIEW uncertain_posts AS
SELECT p.fullname, -- text: Reddit's name for the post
       p.subreddit, -- text: where it was posted
       p.topic, -- text or NULL: the topic that it was last collected for
       p.title, -- text: its title
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, -- text or NULL: the label's slug; NULL if the model abstained
       CASE WHEN c.abstained THEN NULL ELSE l.label_name END AS label_name, -- text or NULL: the label in words; NULL if the model abstained
       c.score, -- number: the best label's score, 0 to 1 except in `raw` mode
       c.margin, -- number: the best score minus the second best; `other` counts like a label
       c.abstained, -- boolean: true if the post got no label
       p.reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       p.num_comments, -- integer or NULL: number of comments
       p.created_at, -- time: when it was posted
       c.classified_at, -- time: when it got its label
       p.selftext, -- text: its body; empty for links
       p.url, -- text or NULL: what a link post points to
       p.permalink, -- text or NULL: its path on Reddit
       p.author, -- text or NULL: its author, hashed unless `collect.store_author` is set
       p.source, -- text: where it came from
       p.crosspost_parent, -- text or NULL: the fullname of the post that a crosspost shows
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome -- text: its label's slug, or `other` or `unsure` (docs/label.md)
  FROM classifications c
  JOIN things p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND p.kind = 'post'
   AND (c.margin < 0.2 OR c.abstained)
   AND (c.margin < 0.2 OR NOT c.other)
 ORDER BY c.margin, c.fullname;

-- A row is one label's score for one post, for any model and any label set, identified by their keys. The view unnests
-- `packed_scores`.
CREATE VIEW label_scores AS
SELECT p.fullname, -- text: the post
       p.model_id, -- integer: the model
       p.label_set_id, -- integer: the label set
       s.n - 1 AS position, -- integer: the position of the label in its set, from 0
       s.score -- number: its score, 0 to 1 except in `raw` mode
  FROM packed_scores p CROSS JOIN LATERAL unnest(p.scores) WITH ORDINALITY AS s (score, n);

-- A row is one label's score for one post, for the current model and label set.
CREATE VIEW post_scores AS
SELECT s.fullname, -- text: the post
       l.label, -- text: the label's slug
       l.label_name, -- text: the label in words
       s.score -- number: its score, 0 to 1 except in `raw` mode
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
         FROM things WHERE kind = 'post' AND topic IS NOT NULL GROUP BY topic
        UNION ALL
       SELECT topic, label, abstained, 0, COUNT(*)
         FROM (SELECT topic, label, abstained FROM classifications
                WHERE model_id = (SELECT model_id FROM current_target)
                  AND label_set_id = (SELECT label_set_id FROM current_target)
                  AND fullname >= 't3' AND day IS NOT NULL AND topic IS NOT NULL
                ORDER BY day, label, abstained, other, topic) c -- The planner uses the index only for this order.
        GROUP BY topic, label, abstained
        UNION ALL
       SELECT p.topic, c.label, c.abstained, 0, 1
         FROM classifications c
         JOIN things p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.fullname >= 't3' AND c.day IS NULL AND p.topic IS NOT NULL)
SELECT COALESCE(n.label, c.topic) AS topic, -- text: the topic's slug
       CAST(SUM(c.posts) AS BIGINT) AS posts, -- integer: its posts
       CAST(SUM(c.labelled) AS BIGINT) AS labelled, -- integer: its labelled posts
       CAST(SUM(CASE WHEN c.label = n.label AND NOT c.abstained THEN c.labelled ELSE 0 END) AS BIGINT) AS agreed, -- integer: its posts whose label is this topic
       CAST(SUM(CASE WHEN c.label = n.label AND NOT c.abstained THEN c.labelled ELSE 0 END) AS double precision)
         / NULLIF(SUM(c.labelled), 0)::double precision AS agreement -- number or NULL: `agreed` divided by `labelled`
  FROM counted c
  LEFT JOIN named n ON n.name = c.topic
 WHERE n.label IS NOT NULL OR NOT EXISTS (SELECT 1 FROM current_target)
 GROUP BY COALESCE(n.label, c.topic);

-- A row is the number of posts from one day with one outcome.
CREATE VIEW topic_daily AS
  WITH counted AS (
       SELECT day, label, abstained, other, COUNT(*) AS posts, SUM(score) AS score
         FROM (SELECT day, label, abstained, other, score FROM classifications
                WHERE model_id = (SELECT model_id FROM current_target)
                  AND label_set_id = (SELECT label_set_id FROM current_target)
                  AND fullname >= 't3' AND day IS NOT NULL
                ORDER BY day, label, abstained, other) c
        GROUP BY day, label, abstained, other
        UNION ALL
       SELECT (p.created_at AT TIME ZONE INTERVAL '0')::date - DATE '1970-01-01', c.label, c.abstained, c.other, 1, c.score
         FROM classifications c
         JOIN things p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.fullname >= 't3' AND c.day IS NULL)
SELECT DATE '1970-01-01' + CAST(c.day AS INTEGER) AS day, -- day: the day on which the posts were posted (UTC)
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, -- text or NULL: the label's slug; NULL for abstained posts
       CAST(SUM(c.posts) AS BIGINT) AS posts, -- integer: posts from this day with this outcome
       SUM(c.score) / CAST(SUM(c.posts) AS double precision) AS mean_score, -- number: the mean of their best scores
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome -- text: the label's slug, or `other` or `unsure`
  FROM counted c
 GROUP BY c.day, CASE WHEN c.abstained THEN NULL ELSE c.label END,
          CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END;

-- A row is a label of a post's current text, from any model and any version of a label set. To select a label set:
-- `WHERE label_set = 'trial'`.
CREATE VIEW labeled_posts_all AS
SELECT p.fullname, -- text: Reddit's name for the post
       s.name AS label_set, -- text: the name of the label set
       substr(s.hash, 1, 12) AS version, -- text: the version: the first 12 characters of `label_sets.hash`; versions may share a name
       m.name AS model, -- text: the name of the model
       m.number_format, -- text: the model's number format; models may share a name
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current, -- boolean: true if this is the current model and version, which the other views show
       p.subreddit, -- text: where it was posted
       p.topic, -- text or NULL: the topic that it was last collected for
       p.title, -- text: its title
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label, -- text or NULL: the label's slug; NULL if the model abstained
       CASE WHEN c.abstained THEN NULL ELSE l.label_name END AS label_name, -- text or NULL: the label in words, such as `climate change`; NULL if the model abstained
       c.score, -- number: the best label's score, 0 to 1 except in `raw` mode
       c.margin, -- number: the best score minus the second best; `other` counts like a label
       c.abstained, -- boolean: true if the post got no label
       p.reddit_score, -- integer or NULL: Reddit's score: upvotes minus downvotes
       p.num_comments, -- integer or NULL: number of comments
       p.created_at, -- time: when it was posted
       c.classified_at, -- time: when it got its label
       p.selftext, -- text: its body; empty for links
       p.url, -- text or NULL: what a link post points to
       p.permalink, -- text or NULL: its path on Reddit, which begins with a slash
       p.author, -- text or NULL: its author, hashed unless `collect.store_author` is set
       p.source, -- text: where it came from: `reddit`, `sample`, `arctic-shift` or `import`
       p.crosspost_parent, -- text or NULL: the fullname of the post that a crosspost shows
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome, -- text: its label's slug, or `other` or `unsure` (docs/label.md)
       substr(m.manifest_hash, 1, 12) AS model_hash -- text: the first 12 characters of `models.manifest_hash`, which distinguish models with the same name
  FROM classifications c
  JOIN label_sets s ON s.id = c.label_set_id
  JOIN models m ON m.id = c.model_id
  JOIN things p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label
 WHERE c.fullname >= 't3';

-- A row is one label's score for one post, for any model and any version of a label set. An edited post's scores are
-- kept until the post is scored again.
CREATE VIEW post_scores_all AS
SELECT p.fullname, -- text: the post
       s.name AS label_set, -- text: the name of the label set
       substr(s.hash, 1, 12) AS version, -- text: the version: the first 12 characters of `label_sets.hash`; versions may share a name
       m.name AS model, -- text: the name of the model
       m.number_format, -- text: the model's number format; models may share a name
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current, -- boolean: true if this is the current model and version, which the other views show
       l.label, -- text: the label's slug
       l.label_name, -- text: the label in words
       e.score, -- number: its score, 0 to 1 except in `raw` mode
       substr(m.manifest_hash, 1, 12) AS model_hash -- text: the first 12 characters of `models.manifest_hash`, which distinguish models with the same name
  FROM packed_scores p
  JOIN label_sets s ON s.id = p.label_set_id
  JOIN models m ON m.id = p.model_id
 CROSS JOIN LATERAL unnest(p.scores) WITH ORDINALITY AS e (score, n)
  JOIN labels l ON l.label_set_id = s.id AND l.position = e.n - 1;
