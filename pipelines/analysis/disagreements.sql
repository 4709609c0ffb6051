-- Posts whose label differs from their topic, highest scores first.
SELECT fullname, topic, label, score, title
  FROM labeled_posts
 WHERE label <> topic
 ORDER BY score DESC, fullname
 LIMIT 20
