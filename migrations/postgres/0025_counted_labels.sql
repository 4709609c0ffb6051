-- `topic_daily` and `topic_agreement` read the post of each label. Now a label carries the day and the topic of its post, and an
-- index has labels in the order of the groups; the inner queries ask for this order, so that the planner reads the index. NULL:
-- nobody wrote the day beside the label, or the post has another text now. Then the views look at the post.
ALTER TABLE classifications ADD COLUMN day BIGINT; -- days since 1970 (UTC) on which the post was posted
ALTER TABLE classifications ADD COLUMN topic TEXT; -- of the post; where `day` is NULL, nobody reads it
UPDATE classifications c
   SET day = (p.created_at AT TIME ZONE INTERVAL '0')::date - DATE '1970-01-01', topic = p.topic
  FROM posts p WHERE p.fullname = c.fullname AND p.text_hash = c.text_hash;
CREATE INDEX classifications_counted ON classifications (model_id, label_set_id, day, label, abstained, other, topic)
    INCLUDE (score) WHERE day IS NOT NULL;
CREATE INDEX classifications_uncounted ON classifications (model_id, label_set_id, fullname) WHERE day IS NULL;
ANALYZE classifications;
-- Whoever changes a post changes what its labels carry, and needs no right on them, as with `topicmill_forget_sightings`.
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
CREATE TRIGGER posts_change_labels AFTER UPDATE OF text_hash, created_at, topic ON posts
    FOR EACH ROW WHEN (OLD.text_hash IS DISTINCT FROM NEW.text_hash OR OLD.created_at IS DISTINCT FROM NEW.created_at
                       OR OLD.topic IS DISTINCT FROM NEW.topic)
    EXECUTE FUNCTION topicmill_change_labels();

CREATE OR REPLACE VIEW topic_daily AS
  WITH counted AS (
       SELECT day, label, abstained, other, COUNT(*) AS posts, SUM(score) AS score
         FROM (SELECT day, label, abstained, other, score FROM classifications
                WHERE model_id = (SELECT model_id FROM current_target)
                  AND label_set_id = (SELECT label_set_id FROM current_target)
                  AND day IS NOT NULL
                ORDER BY day, label, abstained, other) c
        GROUP BY day, label, abstained, other
        UNION ALL
       SELECT (p.created_at AT TIME ZONE INTERVAL '0')::date - DATE '1970-01-01', c.label, c.abstained, c.other, 1, c.score
         FROM classifications c
         JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.day IS NULL)
SELECT DATE '1970-01-01' + CAST(c.day AS INTEGER) AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       CAST(SUM(c.posts) AS BIGINT) AS posts,
       SUM(c.score) / CAST(SUM(c.posts) AS double precision) AS mean_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM counted c
 GROUP BY c.day, CASE WHEN c.abstained THEN NULL ELSE c.label END,
          CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END;

-- As before; posts and labels are counted apart.
CREATE OR REPLACE VIEW topic_agreement AS
  WITH ours AS (
       SELECT l.slug, l.label FROM labels l JOIN current_target t ON t.label_set_id = l.label_set_id),
       named AS (
       SELECT slug AS name, slug FROM ours
        UNION ALL
       SELECT label, MIN(slug) FROM ours
        WHERE label NOT IN (SELECT slug FROM ours) GROUP BY label HAVING COUNT(*) = 1),
       counted AS (
       SELECT topic, NULL AS label, FALSE AS abstained, COUNT(*) AS posts, 0 AS labelled
         FROM posts WHERE topic IS NOT NULL GROUP BY topic
        UNION ALL
       SELECT topic, label, abstained, 0, COUNT(*)
         FROM (SELECT topic, label, abstained FROM classifications
                WHERE model_id = (SELECT model_id FROM current_target)
                  AND label_set_id = (SELECT label_set_id FROM current_target)
                  AND day IS NOT NULL AND topic IS NOT NULL
                ORDER BY day, label, abstained, other, topic) c
        GROUP BY topic, label, abstained
        UNION ALL
       SELECT p.topic, c.label, c.abstained, 0, 1
         FROM classifications c
         JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.day IS NULL AND p.topic IS NOT NULL)
SELECT COALESCE(n.slug, c.topic) AS topic,
       CAST(SUM(c.posts) AS BIGINT) AS posts,
       CAST(SUM(c.labelled) AS BIGINT) AS labelled,
       CAST(SUM(CASE WHEN c.label = n.slug AND NOT c.abstained THEN c.labelled ELSE 0 END) AS BIGINT) AS agreed,
       CAST(SUM(CASE WHEN c.label = n.slug AND NOT c.abstained THEN c.labelled ELSE 0 END) AS double precision)
         / NULLIF(SUM(c.labelled), 0)::double precision AS agreement
  FROM counted c
  LEFT JOIN named n ON n.name = c.topic
 WHERE n.slug IS NOT NULL OR NOT EXISTS (SELECT 1 FROM current_target)
 GROUP BY COALESCE(n.slug, c.topic);
