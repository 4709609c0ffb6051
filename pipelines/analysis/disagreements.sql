-- Posts whose label differs from their topic, highest scores first; topics that are not labels are left out.
WITH ours AS (
     SELECT l.label, l.label_name FROM labels l JOIN current_target t ON t.label_set_id = l.label_set_id)
SELECT p.fullname, p.topic, p.label, p.score, p.title
  FROM labeled_posts p
 WHERE p.label IS NOT NULL
   AND EXISTS (SELECT 1 FROM ours o WHERE p.topic IN (o.label, o.label_name))
   AND NOT EXISTS (SELECT 1 FROM ours o WHERE p.topic IN (o.label, o.label_name) AND o.label = p.label)
 ORDER BY p.score DESC, p.fullname
 LIMIT 20
