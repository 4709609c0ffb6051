-- Posts whose two best outcomes have nearly the same score, closest first.
SELECT fullname, topic, outcome, CASE WHEN outcome = 'other' THEN score + margin ELSE score END AS score, margin, title
  FROM uncertain_posts
 ORDER BY margin, fullname
 LIMIT 20
