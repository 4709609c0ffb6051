-- The latest runs, with the time of day (UTC) when each finished.
SELECT id, stage, status, started_at, substr(CAST(finished_at AS TEXT), 12, 8) AS finished, error
  FROM runs
 ORDER BY id DESC
 LIMIT 20
