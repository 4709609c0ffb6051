DROP VIEW uncertain_posts;
DROP VIEW topic_daily;
DROP VIEW topic_agreement;
DROP VIEW post_scores;
DROP VIEW labeled_posts;

-- The topic for which a post was collected last, beside the post rather than looked up in `sightings`. Of several in
-- one run it is the one that was stored last.
ALTER TABLE posts ADD COLUMN topic TEXT;
UPDATE posts SET topic = (SELECT s.topic FROM sightings s WHERE s.fullname = posts.fullname
                           ORDER BY s.run_id DESC, s.topic LIMIT 1);
DROP INDEX posts_current;
CREATE INDEX posts_current ON posts (fullname, text_hash, created_at, topic, text_purged_at);

-- The scores of a classification in one row: a row for each of them cost more to write, and to check and to
-- keep the keys of, than all else of a label. `label_scores` still shows them one a row.
CREATE TABLE packed_scores (
    fullname     TEXT NOT NULL,
    model_id     INTEGER NOT NULL,
    label_set_id INTEGER NOT NULL,
    scores       TEXT NOT NULL, -- JSON array, in the order of the labels
    PRIMARY KEY (model_id, label_set_id, fullname),
    FOREIGN KEY (model_id, label_set_id, fullname)
        REFERENCES classifications (model_id, label_set_id, fullname) ON DELETE CASCADE
) WITHOUT ROWID;
INSERT INTO packed_scores (fullname, model_id, label_set_id, scores)
SELECT fullname, model_id, label_set_id, '[' || group_concat(printf('%!.17g', score), ',' ORDER BY position) || ']'
  FROM label_scores s
 -- A shell that does not enforce foreign keys may have left scores of nothing.
 WHERE EXISTS (SELECT 1 FROM classifications c WHERE c.model_id = s.model_id
                  AND c.label_set_id = s.label_set_id AND c.fullname = s.fullname)
 GROUP BY model_id, label_set_id, fullname;
DROP TABLE label_scores;
CREATE VIEW label_scores AS
SELECT p.fullname, p.model_id, p.label_set_id, s.key AS position, s.value AS score
  FROM packed_scores p, json_each(p.scores) s;

-- One row a post, under the current model and label set. `topic` is what it was last collected for.
-- Unlabelled posts, and those whose text changed since, have NULL in the columns of the label.
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
       p.score AS post_score,
       p.num_comments,
       p.created_at,
       c.classified_at
  FROM posts p
  LEFT JOIN classifications c NOT INDEXED
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;

-- Every score under the current model and label set, by name.
CREATE VIEW post_scores AS
SELECT s.fullname, l.slug AS label_topic, l.label, s.score
  FROM current_target t
  JOIN label_scores s ON s.model_id = t.model_id AND s.label_set_id = t.label_set_id
  JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position;

-- For each topic: how often the label agrees with what the post was collected for. `LIMIT -1` keeps the inner
-- query apart, so that three small values of a post are sorted by topic, and not the texts they come from.
CREATE VIEW topic_agreement AS
SELECT topic,
       COUNT(*) AS posts,
       SUM(labelled) AS labelled,
       SUM(agreed) AS agreed,
       1.0 * SUM(agreed) / NULLIF(SUM(labelled), 0) AS agreement
  FROM (SELECT p.topic,
               c.fullname IS NOT NULL AS labelled,
               COALESCE(c.label = p.topic AND NOT c.abstained, FALSE) AS agreed
          FROM posts p
          LEFT JOIN classifications c NOT INDEXED
            ON c.model_id = (SELECT model_id FROM current_target)
           AND c.label_set_id = (SELECT label_set_id FROM current_target)
           AND c.fullname = p.fullname AND c.text_hash = p.text_hash
         WHERE p.topic IS NOT NULL
         LIMIT -1)
 GROUP BY topic;

-- Posts a day and label.
CREATE VIEW topic_daily AS
SELECT substr(p.created_at, 1, 10) AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       COUNT(*) AS posts,
       AVG(c.score) AS mean_score
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
 GROUP BY substr(p.created_at, 1, 10), CASE WHEN c.abstained THEN NULL ELSE c.label END;

-- Posts whose label could as well be another one, the closest calls first.
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
