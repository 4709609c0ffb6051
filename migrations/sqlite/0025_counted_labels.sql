-- `topic_daily` and `topic_agreement` read the post of each label, and sorted all labels for their groups. Now a label carries the
-- day and the topic of its post, and an index has labels in the order of the groups. Days come first, because labels are written
-- day by day, more or less: with topics first, each transaction changed a page for each topic and label, and an index entry cost
-- twice as much. NULL: nobody wrote the day beside the label, or the post has another text now. Then the views look at the post.
ALTER TABLE classifications ADD COLUMN day INTEGER; -- days since 1970 (UTC) on which the post was posted
ALTER TABLE classifications ADD COLUMN topic TEXT; -- of the post; where `day` is NULL, nobody reads it
UPDATE classifications
   SET (day, topic) = (SELECT CAST(strftime('%s', substr(p.created_at, 1, 10)) AS INTEGER) / 86400, p.topic
                         FROM posts p WHERE p.fullname = classifications.fullname AND p.text_hash = classifications.text_hash);
CREATE INDEX classifications_counted ON classifications (model_id, label_set_id, day, label, abstained, other, topic, score)
    WHERE day IS NOT NULL;
CREATE INDEX classifications_uncounted ON classifications (model_id, label_set_id, fullname) WHERE day IS NULL;
-- Whoever changes a post changes what its labels carry.
CREATE TRIGGER posts_change_labels AFTER UPDATE OF text_hash, created_at, topic ON posts
  WHEN OLD.text_hash IS NOT NEW.text_hash OR OLD.created_at IS NOT NEW.created_at OR OLD.topic IS NOT NEW.topic
BEGIN
    UPDATE classifications
       SET day = CASE WHEN text_hash = NEW.text_hash
                      THEN CAST(strftime('%s', substr(NEW.created_at, 1, 10)) AS INTEGER) / 86400 END,
           topic = NEW.topic
     WHERE fullname = NEW.fullname;
END;

DROP VIEW topic_daily;
CREATE VIEW topic_daily AS
  WITH counted AS (
       SELECT day, label, abstained, other, COUNT(*) AS posts, SUM(score) AS score
         FROM classifications
        WHERE model_id = (SELECT model_id FROM current_target)
          AND label_set_id = (SELECT label_set_id FROM current_target)
          AND day IS NOT NULL
        GROUP BY day, label, abstained, other
        UNION ALL
       SELECT CAST(strftime('%s', substr(p.created_at, 1, 10)) AS INTEGER) / 86400 AS day, c.label, c.abstained, c.other, 1, c.score
         FROM classifications c INDEXED BY classifications_uncounted
        CROSS JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.day IS NULL)
SELECT date(c.day * 86400, 'unixepoch') AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       SUM(c.posts) AS posts,
       SUM(c.score) / SUM(c.posts) AS mean_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM counted c
 GROUP BY c.day, CASE WHEN c.abstained THEN NULL ELSE c.label END,
          CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END;

-- As before; posts and labels are counted apart.
DROP VIEW topic_agreement;
CREATE VIEW topic_agreement AS
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
         FROM classifications
        WHERE model_id = (SELECT model_id FROM current_target)
          AND label_set_id = (SELECT label_set_id FROM current_target)
          AND day IS NOT NULL AND topic IS NOT NULL
        GROUP BY day, label, abstained, other, topic
        UNION ALL
       SELECT p.topic, c.label, c.abstained, 0, 1
         FROM classifications c INDEXED BY classifications_uncounted
        CROSS JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
        WHERE c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.day IS NULL AND p.topic IS NOT NULL)
SELECT COALESCE(n.slug, c.topic) AS topic,
       SUM(c.posts) AS posts,
       SUM(c.labelled) AS labelled,
       SUM(CASE WHEN c.label = n.slug AND NOT c.abstained THEN c.labelled ELSE 0 END) AS agreed,
       1.0 * SUM(CASE WHEN c.label = n.slug AND NOT c.abstained THEN c.labelled ELSE 0 END)
         / NULLIF(SUM(c.labelled), 0) AS agreement
  FROM counted c
  LEFT JOIN named n ON n.name = c.topic
 WHERE n.slug IS NOT NULL OR NOT EXISTS (SELECT 1 FROM current_target)
 GROUP BY COALESCE(n.slug, c.topic);
