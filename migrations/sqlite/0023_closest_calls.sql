-- The same posts as before. The first rows are read from the index of the closest calls, in its order, however many labels there
-- are. SQLite takes the index only where its condition stands in the query as it does in the index: since schema 13, it
-- read and sorted all labels.
DROP VIEW uncertain_posts;
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
       p.reddit_score AS post_score,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND (c.margin < 0.2 OR c.abstained)
   AND (c.margin < 0.2 OR NOT c.other)
 ORDER BY c.margin, c.fullname;
