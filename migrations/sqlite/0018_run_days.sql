-- Old runs of a day, summed up: a row says how many runs of a stage ended so. `purge --thin` fills it.
CREATE TABLE run_days (
    day     TEXT NOT NULL, -- of their begin, as 2026-11-21
    stage   TEXT NOT NULL,
    status  TEXT NOT NULL,
    runs    INTEGER NOT NULL,
    seconds INTEGER NOT NULL, -- from begin to end, all together
    counts  TEXT NOT NULL DEFAULT '{}', -- JSON object: the sums of their whole numbers
    PRIMARY KEY (day, stage, status)
);

-- A run that goes is looked for here: without these, in all rows.
CREATE INDEX tombstones_run ON tombstones (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX gaps_run ON gaps (run_id) WHERE run_id IS NOT NULL;
