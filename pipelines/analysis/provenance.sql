-- Provenance of labels: model, tokenizer, label set, text, run and worker, latest first.
SELECT c.fullname,
       CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END AS outcome,
       CASE WHEN c.other THEN c.score + c.margin ELSE c.score END AS score,
       m.name AS model,
       m.number_format,
       m.manifest_hash,
       m.tokenizer_hash,
       s.name AS label_set,
       s.hash AS label_set_hash,
       s.template,
       s.mode,
       s.threshold,
       s.temperature,
       c.text_hash,
       c.run_id AS run,
       r.worker,
       c.classified_at
  FROM classifications c
  JOIN models m ON m.id = c.model_id
  JOIN label_sets s ON s.id = c.label_set_id
  LEFT JOIN runs r ON r.id = c.run_id
 ORDER BY c.classified_at DESC, c.fullname, c.model_id, c.label_set_id
 LIMIT 100
