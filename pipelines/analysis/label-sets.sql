-- The versions of label sets, the latest first: threshold, temperature, and posts with and without a label.
SELECT substr(s.hash, 1, 12) AS version,
       s.name,
       s.threshold,
       s.temperature,
       (SELECT COUNT(*) FROM classifications c WHERE c.label_set_id = s.id AND NOT c.abstained) AS posts,
       (SELECT COUNT(*) FROM classifications c WHERE c.label_set_id = s.id AND c.abstained) AS none,
       CASE WHEN t.label_set_id IS NULL THEN '' ELSE 'yes' END AS current
  FROM label_sets s
  LEFT JOIN current_target t ON t.label_set_id = s.id
 ORDER BY s.id DESC
