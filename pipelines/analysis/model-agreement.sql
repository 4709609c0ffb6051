-- Labels of the two latest models for the same posts, with the current label set.
WITH used AS (
    SELECT c.model_id,
           ROW_NUMBER() OVER (ORDER BY MAX(c.classified_at) DESC, c.model_id DESC) AS place
      FROM classifications c
      JOIN current_target t ON t.label_set_id = c.label_set_id
     GROUP BY c.model_id
)
SELECT CASE WHEN a.abstained THEN '(none of these)' ELSE a.label END AS later_model,
       CASE WHEN b.abstained THEN '(none of these)' ELSE b.label END AS earlier_model,
       COUNT(*) AS posts,
       AVG(a.score) AS later_score,
       AVG(b.score) AS earlier_score
  FROM current_target t
  JOIN used ua ON ua.place = 1
  JOIN used ub ON ub.place = 2
  JOIN classifications a ON a.label_set_id = t.label_set_id AND a.model_id = ua.model_id
  JOIN classifications b ON b.label_set_id = t.label_set_id AND b.model_id = ub.model_id
   AND b.fullname = a.fullname AND b.text_hash = a.text_hash
 GROUP BY CASE WHEN a.abstained THEN '(none of these)' ELSE a.label END,
          CASE WHEN b.abstained THEN '(none of these)' ELSE b.label END
 ORDER BY posts DESC, later_model, earlier_model
