-- A hash is as good as random, so each new post changed a page of its own in the index of hashes: at 870,000 posts, half the time
-- of an import. What asks for the posts of a text asks for labelled ones, so labels have the index now. Its condition holds for
-- every label: only a statement that has it as well takes this index, and not a join of posts and labels, which would read in the
-- order of the hashes.
DROP INDEX IF EXISTS posts_text_hash;
CREATE INDEX classifications_text ON classifications (text_hash, fullname) WHERE text_hash >= '';
-- `topic_agreement` counts posts by topic, and SQLite would sort them all. The condition holds for every topic: a list of the
-- newest posts of a topic does not take this index, which is not in the order of time.
CREATE INDEX posts_counted ON posts (topic) WHERE topic >= '';

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
         FROM posts WHERE topic >= '' GROUP BY topic
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
