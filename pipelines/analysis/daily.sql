-- Posts per day and outcome, latest days first.
SELECT day, outcome, posts, mean_score
  FROM topic_daily
 ORDER BY day DESC, posts DESC, 2
 LIMIT 100
