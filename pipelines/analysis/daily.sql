-- Posts for each day and label, the latest days first.
SELECT day, COALESCE(label_topic, '(none of these)') AS label_topic, posts, mean_score
  FROM topic_daily
 ORDER BY day DESC, posts DESC, 2
 LIMIT 100
