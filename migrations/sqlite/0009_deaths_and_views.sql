-- How often a worker died, or stood still for longer than its lease, that held the post: one of those that it
-- held may have killed it. Whoever takes the posts back counts; fewer deaths are claimed first.
ALTER TABLE backlog ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0;
DROP INDEX backlog_claimable;
CREATE INDEX backlog_claimable ON backlog (model_id, label_set_id, deaths, attempts, fullname)
    WHERE lease_id IS NULL;

-- What the views below and the look for unlabelled posts read of each post, without its text.
CREATE INDEX posts_current ON posts (fullname, text_hash, created_at, text_purged_at);
-- In the order in which the last sighting of a post is looked up.
DROP INDEX sightings_fullname;
CREATE INDEX sightings_fullname ON sightings (fullname, run_id DESC, topic);
-- The condition of `uncertain_posts`, in its order.
CREATE INDEX classifications_uncertain ON classifications (model_id, label_set_id, margin, fullname)
    WHERE margin < 0.2 OR abstained;

-- As before, in forms that large databases answer sooner. `NOT INDEXED`: by the key of the table.
DROP VIEW topic_agreement;
DROP VIEW topic_daily;
DROP VIEW uncertain_posts;

-- For each topic: how often the label agrees with what the post was collected for.
CREATE VIEW topic_agreement AS
  WITH one_a_post AS MATERIALIZED (
       SELECT (SELECT s.topic FROM sightings s WHERE s.fullname = p.fullname
                ORDER BY s.run_id DESC, s.topic LIMIT 1) AS topic,
              c.fullname AS labelled,
              CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic
         FROM posts p
         LEFT JOIN current_target t ON TRUE
         LEFT JOIN classifications c NOT INDEXED
           ON c.model_id = t.model_id AND c.label_set_id = t.label_set_id AND c.fullname = p.fullname
          AND c.text_hash = p.text_hash)
SELECT topic,
       COUNT(*) AS posts,
       COUNT(labelled) AS labelled,
       CAST(SUM(CASE WHEN label_topic = topic THEN 1 ELSE 0 END) AS BIGINT) AS agreed,
       1.0 * SUM(CASE WHEN label_topic = topic THEN 1 ELSE 0 END) / NULLIF(COUNT(labelled), 0) AS agreement
  FROM one_a_post
 WHERE topic IS NOT NULL
 GROUP BY topic;

-- Posts a day and label.
CREATE VIEW topic_daily AS
SELECT substr(p.created_at, 1, 10) AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       COUNT(*) AS posts,
       AVG(c.score) AS mean_score
  FROM current_target t
  JOIN classifications c ON c.model_id = t.model_id AND c.label_set_id = t.label_set_id
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
 GROUP BY substr(p.created_at, 1, 10), CASE WHEN c.abstained THEN NULL ELSE c.label END;

-- Posts whose label could as well be another one, the closest calls first.
CREATE VIEW uncertain_posts AS
SELECT p.fullname,
       p.subreddit,
       (SELECT s.topic FROM sightings s WHERE s.fullname = p.fullname
         ORDER BY s.run_id DESC, s.topic LIMIT 1) AS topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE l.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       c.score,
       c.margin,
       c.abstained,
       p.score AS post_score,
       p.num_comments,
       p.created_at,
       c.classified_at
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND (c.margin < 0.2 OR c.abstained)
 ORDER BY c.margin, c.fullname;
