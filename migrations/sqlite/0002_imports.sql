-- How far a dump was read: written in the transaction of the posts it counts, so that an import that died
-- goes on behind the last block that is stored.
CREATE TABLE imports (
    file        TEXT NOT NULL, -- its size and the hash of its first MiB
    selection   TEXT NOT NULL, -- hash of what was asked for of it: filters, topics
    name        TEXT NOT NULL, -- path as given
    byte_offset BIGINT NOT NULL, -- unpacked bytes read
    rows_read   BIGINT NOT NULL,
    left_out    BIGINT NOT NULL, -- of those, by the filters
    posts       BIGINT NOT NULL, -- of those, stored
    rejected    BIGINT NOT NULL, -- of those, no post
    run_id      INTEGER REFERENCES runs (id) ON DELETE SET NULL,
    updated_at  TEXT NOT NULL,
    finished_at TEXT, -- NULL: not read to its end
    PRIMARY KEY (file, selection)
) WITHOUT ROWID;
