-- Posts per topic and label.
SELECT topic, label_topic, COUNT(*) AS posts, AVG(score) AS mean_score
  FROM labeled_posts
 WHERE classified_at IS NOT NULL
 GROUP BY topic, label_topic
 ORDER BY topic, posts DESC, label_topic
