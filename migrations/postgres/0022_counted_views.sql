-- `topic_agreement` and `topic_daily` read five columns of each label: now the tree of the primary key carries them, and the
-- rows of the table are not read. Foreign keys to `classifications`, those of users too, are made anew with it. Where something
-- depends on the key that cannot be made anew, all of it stays as it was; the views show the same with either.
DO $$
DECLARE
    found record;
    again text[] := '{}';
    statement text;
BEGIN
    FOR found IN
        SELECT c.conname, c.conrelid::regclass AS child, pg_get_constraintdef(c.oid) AS definition
          FROM pg_constraint c
         WHERE c.contype = 'f' AND c.confrelid = 'classifications'::regclass AND c.conparentid = 0
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', found.child, found.conname);
        again := again || format('ALTER TABLE %s ADD CONSTRAINT %I %s', found.child, found.conname, found.definition);
    END LOOP;
    ALTER TABLE classifications DROP CONSTRAINT classifications_pkey;
    ALTER TABLE classifications
        ADD CONSTRAINT classifications_pkey PRIMARY KEY (model_id, label_set_id, fullname)
            INCLUDE (text_hash, label, score, abstained, other);
    FOREACH statement IN ARRAY again LOOP
        EXECUTE statement;
    END LOOP;
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege OR foreign_key_violation THEN
    RAISE WARNING 'the primary key of classifications stays as it was: %', SQLERRM;
END $$;

-- The day of a post in UTC. By the name 'UTC', the server looked the zone up for each post, which took a third of the time of
-- `topic_daily`. Versions before 14 count no expressions, see 0020.
DROP STATISTICS IF EXISTS posts_day;
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 140000 THEN
        EXECUTE 'CREATE STATISTICS posts_day ON ((created_at AT TIME ZONE INTERVAL ''0'')::date) FROM posts';
    END IF;
END $$;
ANALYZE posts;

-- As before. Labels are counted as they are stored, and only these counts are put together by what they mean. Both indexes are
-- read in the order of the names, side by side; in an outer join, the planner sees this order only where it is asked for.
CREATE OR REPLACE VIEW topic_agreement AS
  WITH ours AS (
       SELECT l.slug, l.label FROM labels l JOIN current_target t ON t.label_set_id = l.label_set_id),
       named AS (
       SELECT slug AS name, slug FROM ours
        UNION ALL
       SELECT label, MIN(slug) FROM ours
        WHERE label NOT IN (SELECT slug FROM ours) GROUP BY label HAVING COUNT(*) = 1),
       counted AS (
       SELECT p.topic, c.label, c.abstained, COUNT(*) AS posts, COUNT(c.fullname) AS labelled
         FROM posts p
         LEFT JOIN (
              SELECT fullname, text_hash, label, abstained
                FROM classifications
               WHERE model_id = (SELECT model_id FROM current_target)
                 AND label_set_id = (SELECT label_set_id FROM current_target)
               ORDER BY fullname) c
           ON c.fullname = p.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
        WHERE p.topic IS NOT NULL
        GROUP BY p.topic, c.label, c.abstained)
SELECT COALESCE(n.slug, c.topic) AS topic,
       CAST(SUM(c.posts) AS BIGINT) AS posts,
       CAST(SUM(c.labelled) AS BIGINT) AS labelled,
       CAST(SUM(CASE WHEN c.label = n.slug AND NOT c.abstained THEN c.posts ELSE 0 END) AS BIGINT) AS agreed,
       CAST(SUM(CASE WHEN c.label = n.slug AND NOT c.abstained THEN c.posts ELSE 0 END) AS double precision)
         / NULLIF(SUM(c.labelled), 0)::double precision AS agreement
  FROM counted c
  LEFT JOIN named n ON n.name = c.topic
 WHERE n.slug IS NOT NULL OR NOT EXISTS (SELECT 1 FROM current_target)
 GROUP BY COALESCE(n.slug, c.topic);

CREATE OR REPLACE VIEW topic_daily AS
  WITH counted AS (
       SELECT (p.created_at AT TIME ZONE INTERVAL '0')::date AS day, c.label, c.abstained, c.other,
              COUNT(*) AS posts, SUM(c.score) AS score
         FROM classifications c
         JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
        GROUP BY (p.created_at AT TIME ZONE INTERVAL '0')::date, c.label, c.abstained, c.other)
SELECT day,
       CASE WHEN abstained THEN NULL ELSE label END AS label_topic,
       CAST(SUM(posts) AS BIGINT) AS posts,
       SUM(score) / CAST(SUM(posts) AS double precision) AS mean_score,
       CASE WHEN other THEN 'other' WHEN abstained THEN 'unsure' ELSE label END AS outcome
  FROM counted
 GROUP BY day, CASE WHEN abstained THEN NULL ELSE label END,
          CASE WHEN other THEN 'other' WHEN abstained THEN 'unsure' ELSE label END;
