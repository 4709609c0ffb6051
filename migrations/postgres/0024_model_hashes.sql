-- Two models may share name and precision, as a model that ships and the one that shipped before it. The views of all labels
-- tell them apart: by the first letters of the hash, which `labels list` and --model use, too.
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
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome,
       substr(m.manifest_hash, 1, 12) AS model_hash
  FROM classifications c
  JOIN label_sets s ON s.id = c.label_set_id
  JOIN models m ON m.id = c.model_id
  JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;
CREATE OR REPLACE VIEW post_scores_all AS
SELECT p.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.precision,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       l.slug AS label_topic,
       l.label,
       e.score,
       substr(m.manifest_hash, 1, 12) AS model_hash
  FROM packed_scores p
  JOIN label_sets s ON s.id = p.label_set_id
  JOIN models m ON m.id = p.model_id
 CROSS JOIN LATERAL unnest(p.scores) WITH ORDINALITY AS e (score, n)
  JOIN labels l ON l.label_set_id = s.id AND l.position = e.n - 1;
CREATE OR REPLACE VIEW deciding_models AS
SELECT c.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.precision,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       c.by_small,
       CASE WHEN c.by_small THEN m.small ELSE COALESCE(m.large, m.name) END AS decided_by,
       substr(m.manifest_hash, 1, 12) AS model_hash
  FROM classifications c
  JOIN label_sets s ON s.id = c.label_set_id
  JOIN models m ON m.id = c.model_id
  JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END;
