-- How far each schedule was looked at: slots up to this time have rows, or were counted as missed.
CREATE TABLE schedules (
    name          TEXT PRIMARY KEY NOT NULL,
    cron          TEXT NOT NULL, -- five fields
    timezone      TEXT NOT NULL, -- of the IANA database
    planned_until TIMESTAMPTZ NOT NULL
);

-- Due times of schedules. A schedule has one slot a time, and at most one that runs.
CREATE TABLE slots (
    id           BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule     TEXT NOT NULL,
    due_at       TIMESTAMPTZ NOT NULL,
    start_at     TIMESTAMPTZ NOT NULL, -- due_at and the jitter
    status       TEXT NOT NULL, -- waiting, running, done, partial, failed, stopped, skipped, missed
    missed       BIGINT NOT NULL DEFAULT 0, -- slots right before this one that nobody ran, which have no rows; itself, too
    missed_since TIMESTAMPTZ, -- the first of them
    worker       TEXT, -- host and process
    takes        BIGINT NOT NULL DEFAULT 0, -- how often it was taken; the fencing token
    deaths       BIGINT NOT NULL DEFAULT 0, -- how often its process died
    lease_until  TIMESTAMPTZ,
    started_at   TIMESTAMPTZ,
    finished_at  TIMESTAMPTZ,
    outcomes     JSONB NOT NULL DEFAULT '[]', -- JSON array, one entry a stage that ended
    error        TEXT,
    UNIQUE (schedule, due_at)
);
CREATE UNIQUE INDEX slots_running ON slots (schedule) WHERE status = 'running';
CREATE INDEX slots_waiting ON slots (schedule, due_at) WHERE status = 'waiting';

-- The slot that a run belongs to.
ALTER TABLE runs ADD COLUMN slot_id BIGINT REFERENCES slots (id) ON DELETE SET NULL;
CREATE INDEX runs_of_slots ON runs (slot_id) WHERE slot_id IS NOT NULL;
