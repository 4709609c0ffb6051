-- The post that a crosspost shows: its text is that post's, and goes with it. NULL: no crosspost.
ALTER TABLE posts ADD COLUMN crosspost_parent TEXT;
-- Crossposts that earlier versions stored have a link to that post, and its body. A link that is a path is Reddit's own;
-- people write whole addresses, too, with a body of their own: such a post is a crosspost where body, title or hash is
-- the other post's. Where that is not stored, the next `purge --check-deleted` asks Reddit about these first.
CREATE TABLE links_to_posts AS
  WITH links AS (
       SELECT fullname, lower(url) NOT LIKE 'http%' AS is_path,
              replace(replace(substr(lower(url), instr(lower(url), '/comments/') + 10), '?', '/'), '#', '/') || '/' AS rest
         FROM posts
        WHERE NOT is_self AND selftext <> '' AND (url LIKE '/r/%/comments/_%' OR url LIKE '/u%/comments/_%'
               OR url LIKE 'http%://%reddit.com/%/comments/_%'))
SELECT fullname, is_path, 't3_' || ltrim(substr(rest, 1, instr(rest, '/') - 1), '0') AS shown
  FROM links
 WHERE substr(rest, 1, instr(rest, '/') - 1) <> '' AND substr(rest, 1, instr(rest, '/') - 1) NOT GLOB '*[^0-9a-z]*';
DELETE FROM links_to_posts WHERE shown IS NULL OR shown = 't3_' OR shown = fullname;
UPDATE posts
   SET crosspost_parent = (SELECT shown FROM links_to_posts l WHERE l.fullname = posts.fullname)
 WHERE fullname IN (SELECT l.fullname FROM links_to_posts l WHERE l.is_path)
    OR fullname IN (SELECT l.fullname FROM links_to_posts l
                      JOIN posts p ON p.fullname = l.fullname
                      JOIN posts shown ON shown.fullname = l.shown
                     WHERE shown.text_hash = p.text_hash OR shown.selftext = p.selftext
                        OR (shown.title = p.title AND shown.text_purged_at IS NULL));
UPDATE posts SET checked_at = NULL
 WHERE crosspost_parent IS NULL AND fullname IN (SELECT fullname FROM links_to_posts);
DROP TABLE links_to_posts;
CREATE INDEX posts_crosspost_parent ON posts (crosspost_parent) WHERE crosspost_parent IS NOT NULL;

-- When a run last showed that it lives. NULL: it has not yet, or is of an earlier version.
ALTER TABLE runs ADD COLUMN heartbeat_at TEXT;

-- An id is a number, and earlier versions took `t3_0aa1` for another post than `t3_aa1`: past its tombstone, too. Labels of
-- such a post are made again, from the logits that are stored.
-- Reddit does not know such a spelling: that it showed no post of that name says nothing about the post.
DELETE FROM posts
 WHERE fullname IN (SELECT 't3_' || ltrim(substr(fullname, 4), '0') FROM tombstones
                     WHERE substr(fullname, 4, 1) = '0' AND reason IN ('deleted', 'requested'));
INSERT INTO tombstones (fullname, reason, purged_at, run_id)
SELECT 't3_' || ltrim(substr(fullname, 4), '0'), MAX(reason), MAX(purged_at), MAX(run_id) FROM tombstones
 WHERE substr(fullname, 4, 1) = '0' AND reason IN ('deleted', 'requested') AND ltrim(substr(fullname, 4), '0') <> ''
 GROUP BY 1
    ON CONFLICT (fullname) DO UPDATE SET reason = excluded.reason
 WHERE tombstones.reason IN ('removed', 'missing');
DELETE FROM tombstones WHERE substr(fullname, 4, 1) = '0';
DELETE FROM posts
 WHERE substr(fullname, 4, 1) = '0'
   AND ('t3_' || ltrim(substr(fullname, 4), '0') IN (SELECT fullname FROM tombstones)
     OR 't3_' || ltrim(substr(fullname, 4), '0') IN (SELECT fullname FROM posts)
     OR ltrim(substr(fullname, 4), '0') = ''
     OR EXISTS (SELECT 1 FROM posts o WHERE substr(o.fullname, 4, 1) = '0' AND o.fullname < posts.fullname
                   AND ltrim(substr(o.fullname, 4), '0') = ltrim(substr(posts.fullname, 4), '0')));
INSERT INTO posts (fullname, subreddit, title, selftext, url, permalink, author, score, upvote_ratio, num_comments, flair,
       over_18, is_self, source, text_hash, created_at, collected_at, updated_at, removed_at, checked_at, text_purged_at,
       score_is_placeholder, topic, crosspost_parent)
SELECT 't3_' || ltrim(substr(fullname, 4), '0'), subreddit, title, selftext, url, permalink, author, score, upvote_ratio,
       num_comments, flair, over_18, is_self, source, text_hash, created_at, collected_at, updated_at, removed_at,
       checked_at, text_purged_at, score_is_placeholder, topic, crosspost_parent
  FROM posts WHERE substr(fullname, 4, 1) = '0';
UPDATE sightings SET fullname = 't3_' || ltrim(substr(fullname, 4), '0') WHERE substr(fullname, 4, 1) = '0';
DELETE FROM posts WHERE substr(fullname, 4, 1) = '0';
UPDATE posts SET crosspost_parent = 't3_' || ltrim(substr(crosspost_parent, 4), '0')
 WHERE substr(crosspost_parent, 4, 1) = '0';

-- Where retention and labelling met, posts were labelled after their text was taken: what a model said of the empty
-- text was stored under the hash of the earlier one, and every post with that text got it. Such labels go, and those
-- that came after them of the same text; the next `classify` computes them again where the text is still there.
DELETE FROM backlog WHERE fullname IN (SELECT fullname FROM posts WHERE text_purged_at IS NOT NULL);
DELETE FROM pair_logits
 WHERE text_hash IN (SELECT c.text_hash FROM classifications c JOIN posts p ON p.fullname = c.fullname
                      WHERE c.classified_at >= p.text_purged_at);
  WITH mislabelled AS MATERIALIZED (
       SELECT c.text_hash, MIN(c.classified_at) AS since
         FROM classifications c
         JOIN posts p ON p.fullname = c.fullname
        WHERE c.classified_at >= p.text_purged_at
        GROUP BY c.text_hash)
DELETE FROM classifications
 WHERE EXISTS (SELECT 1 FROM mislabelled m
                WHERE m.text_hash = classifications.text_hash AND classifications.classified_at >= m.since);

-- Earlier versions kept the crossposts of posts that were purged. They go, as those posts did, and so do crossposts of
-- these; a tombstone of their own keeps them from coming back out of a file that does not say what they show.
INSERT INTO tombstones (fullname, reason, purged_at)
  WITH RECURSIVE gone (fullname) AS (
       SELECT p.fullname FROM posts p WHERE p.crosspost_parent IN (SELECT t.fullname FROM tombstones t)
        UNION
       SELECT p.fullname FROM posts p JOIN gone ON p.crosspost_parent = gone.fullname)
SELECT fullname, 'shown', strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now') FROM gone WHERE TRUE
    ON CONFLICT (fullname) DO NOTHING;
DELETE FROM posts WHERE fullname IN (SELECT fullname FROM tombstones WHERE reason = 'shown');
  WITH RECURSIVE taken (fullname) AS (
       SELECT p.fullname FROM posts p JOIN posts shown ON shown.fullname = p.crosspost_parent
        WHERE shown.text_purged_at IS NOT NULL
        UNION
       SELECT p.fullname FROM posts p JOIN taken ON p.crosspost_parent = taken.fullname)
UPDATE posts
   SET title = '', selftext = '', url = NULL, permalink = NULL, author = NULL, flair = NULL,
       text_purged_at = strftime('%Y-%m-%dT%H:%M:%S+00:00', 'now')
 WHERE text_purged_at IS NULL AND fullname IN (SELECT fullname FROM taken);

-- What models said of texts that were edited away, and are no post's any more.
DELETE FROM pair_logits WHERE NOT EXISTS (SELECT 1 FROM posts p WHERE p.text_hash = pair_logits.text_hash);

-- Bytes of what was purged before may be in free space of the files: the next purge rewrites them.
INSERT INTO meta (key, value)
SELECT 'rewrite_due', 'since schema 11'
 WHERE EXISTS (SELECT 1 FROM tombstones) OR EXISTS (SELECT 1 FROM posts WHERE text_purged_at IS NOT NULL);

DROP VIEW uncertain_posts;
DROP VIEW labeled_posts;
-- As before, and with what else a post has. `author` is hashed unless it was asked for; `permalink` begins with a slash.
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
       c.classified_at,
       p.selftext,
       p.url,
       p.permalink,
       p.author,
       p.source,
       p.crosspost_parent
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
       p.score AS post_score,
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
  JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash
  LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.slug = c.label
 WHERE c.model_id = (SELECT model_id FROM current_target)
   AND c.label_set_id = (SELECT label_set_id FROM current_target)
   AND (c.margin < 0.2 OR c.abstained)
 ORDER BY c.margin, c.fullname;
