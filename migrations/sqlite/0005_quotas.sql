-- The pace of a client id, for all processes that collect into this database. Times are microseconds since 1970.
CREATE TABLE quotas (
    id         TEXT PRIMARY KEY NOT NULL, -- hash of client id and URL of the API
    next_at    BIGINT NOT NULL, -- when the next request is due at an even pace (GCRA's theoretical arrival time)
    held_until BIGINT NOT NULL -- nobody sends anything before
) WITHOUT ROWID;
