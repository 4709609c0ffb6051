-- Versions of label sets, latest first: threshold, temperature, and posts with and without a label per model.
SELECT substr(s.hash, 1, 12) AS version,
       s.name,
       s.threshold,
       s.temperature,
       m.name AS model,
       substr(m.manifest_hash, 1, 12) AS model_hash,
       (SELECT COUNT(*) FROM classifications c
         WHERE c.model_id = m.id AND c.label_set_id = s.id AND NOT c.abstained) AS posts,
       (SELECT COUNT(*) FROM classifications c
         WHERE c.model_id = m.id AND c.label_set_id = s.id AND c.abstained) AS none,
       CASE WHEN t.label_set_id IS NULL THEN '' ELSE 'yes' END AS current
  FROM label_sets s
  LEFT JOIN models m ON EXISTS (SELECT 1 FROM classifications c WHERE c.model_id = m.id AND c.label_set_id = s.id)
  LEFT JOIN current_target t ON t.label_set_id = s.id AND t.model_id = m.id
 ORDER BY s.id DESC, m.id DESC
