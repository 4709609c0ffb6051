-- What was deleted on Reddit must be deleted here, and must not come back from a file.

-- When Reddit last showed the post, asked about it or on a listing. NULL: it was not asked yet, or showed the
-- post as removed.
ALTER TABLE posts ADD COLUMN checked_at TEXT;
-- When retention took the text, url, author and flair; labels and scores stayed. NULL: they are there.
ALTER TABLE posts ADD COLUMN text_purged_at TEXT;
UPDATE posts SET checked_at = updated_at WHERE source IN ('reddit', 'sample') AND removed_at IS NULL;
CREATE INDEX posts_checked_at ON posts (checked_at, fullname);
CREATE INDEX posts_with_text ON posts (collected_at) WHERE text_purged_at IS NULL;

-- A post that was purged, and why. Nothing stores it again, but for what Reddit itself lifts.
CREATE TABLE tombstones (
    fullname  TEXT PRIMARY KEY NOT NULL,
    reason    TEXT NOT NULL, -- deleted, removed, missing, requested
    purged_at TEXT NOT NULL,
    run_id    INTEGER REFERENCES runs (id) ON DELETE SET NULL
) WITHOUT ROWID;
