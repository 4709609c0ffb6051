-- Topics beside the labels, and the posts that fit them better than every label. NULL: the label set has none.
ALTER TABLE label_sets ADD COLUMN background TEXT; -- name@version
ALTER TABLE label_sets ADD COLUMN background_topics JSONB; -- the whole of it
ALTER TABLE classifications ADD COLUMN other BOOLEAN NOT NULL DEFAULT FALSE; -- the background fits better than every label

-- As before, and with what became of a post: the slug of its label, `other` or `unsure`.
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
       p.reddit_score AS post_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM posts p
  LEFT JOIN classifications c
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;
-- A post that is surely other is not uncertain.
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
       p.reddit_score AS post_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND (c.margin < 0.2 OR (c.abstained AND NOT c.other))
 ORDER BY c.margin, c.fullname;
CREATE OR REPLACE VIEW labeled_posts_all AS
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
       p.crosspost_parent,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM classifications c
  JOIN label_sets s ON s.id = c.label_set_id
  JOIN models m ON m.id = c.model_id
  JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;
-- Posts a day and outcome.
CREATE OR REPLACE VIEW topic_daily AS
SELECT (p.created_at AT TIME ZONE 'UTC')::date AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       COUNT(*) AS posts,
       AVG(c.score) AS mean_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
 GROUP BY (p.created_at AT TIME ZONE 'UTC')::date, CASE WHEN c.abstained THEN NULL ELSE c.label END,
          CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END;
