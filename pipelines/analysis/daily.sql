-- Posts per day and outcome, latest days first.
SELECT day, outcome, posts, CASE WHEN outcome <> 'other' THEN mean_score END AS mean_score
  FROM topic_daily
 ORDER BY day DESC, posts DESC, 2
 LIMIT 100
