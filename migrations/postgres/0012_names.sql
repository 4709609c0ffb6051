-- `score` is the model's wherever it stands: what Reddit's users gave a post is `reddit_score` from here on.
ALTER TABLE posts RENAME COLUMN score TO reddit_score;
ALTER TABLE posts RENAME COLUMN score_is_placeholder TO reddit_score_is_placeholder;
ALTER TABLE sightings RENAME COLUMN score TO reddit_score;
-- In place, so that views of users that are built on it go on.
ALTER VIEW labeled_posts RENAME COLUMN post_score TO reddit_score;
ALTER VIEW uncertain_posts RENAME COLUMN post_score TO reddit_score;
-- As before. `reddit_score` was `post_score`, which stays at the end for one version.
CREATE OR REPLACE VIEW labeled_posts AS
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
  LEFT JOIN classifications c
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;
CREATE OR REPLACE VIEW uncertain_posts AS
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
  FROM classifications c
  JOIN label_sets s ON s.id = c.label_set_id
  JOIN models m ON m.id = c.model_id
  JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
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
       e.score
  FROM packed_scores p
  JOIN label_sets s ON s.id = p.label_set_id
  JOIN models m ON m.id = p.model_id
 CROSS JOIN LATERAL unnest(p.scores) WITH ORDINALITY AS e (score, n)
  JOIN labels l ON l.label_set_id = s.id AND l.position = e.n - 1;
