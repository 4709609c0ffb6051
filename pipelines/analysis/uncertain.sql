-- Posts whose two best labels have nearly the same score, closest first.
SELECT fullname, topic, COALESCE(label, '(none of these)') AS label, score, margin, title
  FROM uncertain_posts
 ORDER BY margin, fullname
 LIMIT 20
