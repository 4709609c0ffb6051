-- A stretch of time of which a subreddit's posts could not all be read: Reddit lists about 1,000 at most.
CREATE TABLE gaps (
    source    TEXT NOT NULL,
    topic     TEXT NOT NULL,
    subreddit TEXT NOT NULL,
    from_at   TEXT NOT NULL, -- the newest post that was known
    until_at  TEXT NOT NULL, -- the oldest post that was listed
    run_id    INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    PRIMARY KEY (source, topic, subreddit, from_at)
) WITHOUT ROWID;
