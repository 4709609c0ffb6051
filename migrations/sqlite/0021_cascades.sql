-- A cascade is one model in `models`, and two of them label posts: the names of both, and which of them decided.
ALTER TABLE models ADD COLUMN large TEXT; -- NULL: one model alone
ALTER TABLE models ADD COLUMN small TEXT;
ALTER TABLE classifications ADD COLUMN by_small BOOLEAN NOT NULL DEFAULT FALSE; -- the large one had no say

-- Every label with the model that decided it.
CREATE VIEW deciding_models AS
SELECT c.fullname,
       s.name AS label_set,
       substr(s.hash, 1, 12) AS version,
       m.name AS model,
       m.precision,
       EXISTS (SELECT 1 FROM current_target t WHERE t.model_id = m.id AND t.label_set_id = s.id) AS is_current,
       c.by_small,
       CASE WHEN c.by_small THEN m.small ELSE COALESCE(m.large, m.name) END AS decided_by
  FROM label_sets s
 CROSS JOIN models m
 CROSS JOIN classifications c NOT INDEXED ON c.model_id = m.id AND c.label_set_id = s.id
 CROSS JOIN posts p ON p.fullname = c.fullname AND p.text_hash = c.text_hash;
