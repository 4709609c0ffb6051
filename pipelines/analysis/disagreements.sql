-- Posts that the model is sure belong elsewhere than where they were posted.
SELECT fullname, topic, label_topic, score, title
  FROM labeled_posts
 WHERE label_topic <> topic
 ORDER BY score DESC, fullname
 LIMIT 20
