-- Archives and files have texts as Reddit escapes them for HTML (`&amp;`), and versions before this one stored them so. A mark
-- says which texts may be escaped still: `topicmill db decode` decodes them once, and the next `classify` scores them anew.
ALTER TABLE posts ADD COLUMN is_escaped BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE posts SET is_escaped = TRUE
 WHERE source IN ('import', 'arctic-shift') AND text_purged_at IS NULL
   AND (title LIKE '%&%;%' OR selftext LIKE '%&%;%');
CREATE INDEX posts_escaped ON posts (fullname) WHERE is_escaped;
-- Nothing is computed from these, so they are decoded here: `&amp;` last, so that nothing is decoded twice.
UPDATE posts
   SET url = replace(replace(replace(replace(replace(url, '&lt;', '<'), '&gt;', '>'), '&quot;', '"'), '&#39;', ''''), '&amp;', '&'),
       permalink = replace(replace(replace(replace(replace(permalink, '&lt;', '<'), '&gt;', '>'), '&quot;', '"'), '&#39;', ''''), '&amp;', '&'),
       flair = replace(replace(replace(replace(replace(flair, '&lt;', '<'), '&gt;', '>'), '&quot;', '"'), '&#39;', ''''), '&amp;', '&')
 WHERE source IN ('import', 'arctic-shift')
   AND (url LIKE '%&%;%' OR permalink LIKE '%&%;%' OR flair LIKE '%&%;%');

-- For each topic that the current label set has: how often the label agrees with what the post was collected for. A file may
-- name a topic by its label. Without a current label set, every topic is there, and nothing is labelled.
CREATE OR REPLACE VIEW topic_agreement AS
  WITH ours AS (
       SELECT l.slug, l.label FROM labels l JOIN current_target t ON t.label_set_id = l.label_set_id),
       named AS (
       SELECT slug AS name, slug FROM ours
        UNION ALL
       SELECT label, MIN(slug) FROM ours
        WHERE label NOT IN (SELECT slug FROM ours) GROUP BY label HAVING COUNT(*) = 1),
       counted AS (
       SELECT p.topic,
              CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
              COUNT(*) AS posts,
              COUNT(c.fullname) AS labelled
         FROM posts p
         LEFT JOIN classifications c
           ON c.model_id = (SELECT model_id FROM current_target)
          AND c.label_set_id = (SELECT label_set_id FROM current_target)
          AND c.fullname = p.fullname AND c.text_hash = p.text_hash
        WHERE p.topic IS NOT NULL
        GROUP BY p.topic, CASE WHEN c.abstained THEN NULL ELSE c.label END)
SELECT COALESCE(n.slug, c.topic) AS topic,
       CAST(SUM(c.posts) AS BIGINT) AS posts,
       CAST(SUM(c.labelled) AS BIGINT) AS labelled,
       CAST(SUM(CASE WHEN c.label_topic = n.slug THEN c.posts ELSE 0 END) AS BIGINT) AS agreed,
       CAST(SUM(CASE WHEN c.label_topic = n.slug THEN c.posts ELSE 0 END) AS double precision)
         / NULLIF(SUM(c.labelled), 0)::double precision AS agreement
  FROM counted c
  LEFT JOIN named n ON n.name = c.topic
 WHERE n.slug IS NOT NULL OR NOT EXISTS (SELECT 1 FROM current_target)
 GROUP BY COALESCE(n.slug, c.topic);
