-- The latest runs.
SELECT id, stage, status, started_at, heartbeat_at, finished_at, error
  FROM runs
 ORDER BY id DESC
 LIMIT 20
