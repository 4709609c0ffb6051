-- Posts whose label differs from their topic, highest scores first.
SELECT fullname, topic, label_topic, score, title
  FROM labeled_posts
 WHERE label_topic <> topic
 ORDER BY score DESC, fullname
 LIMIT 20
