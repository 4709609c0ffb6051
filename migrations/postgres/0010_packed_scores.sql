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
    model_id     BIGINT NOT NULL,
    label_set_id BIGINT NOT NULL,
    scores       DOUBLE PRECISION[] NOT NULL, -- in the order of the labels
    PRIMARY KEY (model_id, label_set_id, fullname),
    FOREIGN KEY (model_id, label_set_id, fullname)
        REFERENCES classifications (model_id, label_set_id, fullname) ON DELETE CASCADE
);
INSERT INTO packed_scores (fullname, model_id, label_set_id, scores)
SELECT fullname, model_id, label_set_id, array_agg(score ORDER BY position)
  FROM label_scores
 GROUP BY model_id, label_set_id, fullname;
ALTER TABLE label_scores RENAME TO label_scores_before;
CREATE VIEW label_scores AS
SELECT p.fullname, p.model_id, p.label_set_id, s.n - 1 AS position, s.score
  FROM packed_scores p CROSS JOIN LATERAL unnest(p.scores) WITH ORDINALITY AS s (score, n);

-- Checked for each of the 16 pairs of a post, they took a third of the time that its labels take. The ids come
-- from rows that are looked up or made a moment before. Nothing deletes those; who deletes a model by hand takes its
-- logits along.
ALTER TABLE pair_logits DROP CONSTRAINT pair_logits_model_id_fkey;
ALTER TABLE pair_logits DROP CONSTRAINT pair_logits_hypothesis_id_fkey;
CREATE FUNCTION topicmill_forget_logits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM pair_logits WHERE model_id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER models_forget_logits AFTER DELETE ON models
    FOR EACH ROW EXECUTE FUNCTION topicmill_forget_logits();

-- One row a post, under the current model and label set. `topic` is what it was last collected for.
-- Unlabelled posts, and those whose text changed since, have NULL in the columns of the label.
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
       p.score AS post_score,
       p.num_comments,
       p.created_at,
       c.classified_at
  FROM posts p
  LEFT JOIN classifications c
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label;

-- Every score under the current model and label set, by name.
CREATE OR REPLACE VIEW post_scores AS
SELECT s.fullname, l.slug AS label_topic, l.label, s.score
  FROM current_target t
  JOIN label_scores s ON s.model_id = t.model_id AND s.label_set_id = t.label_set_id
  JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position;

-- For each topic: how often the label agrees with what the post was collected for.
CREATE OR REPLACE VIEW topic_agreement AS
SELECT p.topic,
       COUNT(*) AS posts,
       COUNT(c.fullname) AS labelled,
       CAST(SUM(CASE WHEN c.label = p.topic AND NOT c.abstained THEN 1 ELSE 0 END) AS BIGINT) AS agreed,
       1.0::double precision * SUM(CASE WHEN c.label = p.topic AND NOT c.abstained THEN 1 ELSE 0 END)
         / NULLIF(COUNT(c.fullname), 0) AS agreement
  FROM posts p
  LEFT JOIN classifications c
    ON c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND c.fullname = p.fullname AND c.text_hash = p.text_hash
 WHERE p.topic IS NOT NULL
 GROUP BY p.topic;

-- Posts a day and label. The comparison of the hashes is wrapped up, because the planner takes it for
-- one more coincidence, expects a single row and plans for that.
CREATE OR REPLACE VIEW topic_daily AS
SELECT (p.created_at AT TIME ZONE 'UTC')::date AS day,
       CASE WHEN c.abstained THEN NULL ELSE c.label END AS label_topic,
       COUNT(*) AS posts,
       AVG(c.score) AS mean_score
  FROM classifications c
  JOIN posts p ON p.fullname = c.fullname AND CASE WHEN p.text_hash = c.text_hash THEN TRUE ELSE FALSE END
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
 GROUP BY (p.created_at AT TIME ZONE 'UTC')::date, CASE WHEN c.abstained THEN NULL ELSE c.label END;

-- Posts whose label could as well be another one, the closest calls first.
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

DROP TABLE label_scores_before;
