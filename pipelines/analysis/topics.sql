-- Posts per topic and label.
SELECT topic, COALESCE(label, '(none of these)') AS label, COUNT(*) AS posts,
       AVG(CASE WHEN label IS NOT NULL THEN score END) AS mean_score
  FROM labeled_posts
 WHERE classified_at IS NOT NULL
 GROUP BY topic, COALESCE(label, '(none of these)')
 ORDER BY topic, posts DESC, 2
