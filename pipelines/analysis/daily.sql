-- Posts a day and label, the latest days first.
SELECT day, label_topic, posts, mean_score
  FROM topic_daily
 ORDER BY day DESC, posts DESC, label_topic
 LIMIT 100
