-- `score` is the model's wherever it stands: what Reddit's users gave a post is `reddit_score` from here on.
-- SQLite rewrites the views and triggers that name these columns, and refuses to where it finds one, of whoever made it,
-- that does not work any more. Such a one is left as it is.
PRAGMA writable_schema = ON;
ALTER TABLE posts RENAME COLUMN score TO reddit_score;
ALTER TABLE posts RENAME COLUMN score_is_placeholder TO reddit_score_is_placeholder;
ALTER TABLE sightings RENAME COLUMN score TO reddit_score;
PRAGMA writable_schema = OFF;

DROP VIEW uncertain_posts;
DROP VIEW labeled_posts;
-- As before. `reddit_score` was `post_score`, which stays at the end for one version.
CREATE VIEW labeled_posts AS
SELECT p.fullname,
       p.subreddit,
       p.topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE l.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       c.score,
       c.margin,
       c.abstained,
       p.reddit_score,
       p.num_comments,
       p.created_at,
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent,
       p.reddit_score AS post_score
  FROM posts p
  LEFT JOIN classifications c NOT INDEXED
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;
CREATE VIEW uncertain_posts AS
SELECT p.fullname,
       p.subreddit,
       p.topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE l.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       c.score,
       c.margin,
       c.abstained,
       p.reddit_score,
       p.num_comments,
       p.created_at,
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent,
       p.reddit_score AS post_score
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND (c.margin < 0.2 OR c.abstained)
 ORDER BY c.margin, c.fullname;

-- Labels under every model and label set that is stored: one row a post and target, of its present text.
-- A plan that begins with the few label sets and models finds the rows of one of them by their key, which begins with
-- these two; `CROSS JOIN` holds SQLite to it.
CREATE VIEW labeled_posts_all AS
SELECT p.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.precision,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       p.subreddit,
       p.topic,
       p.title,
       CASE WHEN c.abstained THEN NULL ELSE l.label END AS label,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       c.score,
       c.margin,
       c.abstained,
       p.reddit_score,
       p.num_comments,
       p.created_at,
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent
  FROM label_sets s
 CROSS JOIN models m
 CROSS JOIN classifications c NOT INDEXED ON c.model_id = m.id AND c.label_set_id = s.id
 CROSS JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;

-- Every score under every model and label set that is stored.
CREATE VIEW post_scores_all AS
SELECT p.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.precision,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       l.slug AS label_topic,
       l.label,
       e.value AS score
  FROM label_sets s
 CROSS JOIN models m
 CROSS JOIN packed_scores p ON p.model_id = m.id AND p.label_set_id = s.id
 CROSS JOIN json_each(p.scores) e
 CROSS JOIN labels l ON l.label_set_id = s.id AND l.position = e.key;
