-- What the logits of a label set are divided by before they become scores. (migrations/postgres also tells
-- watching workers of new posts; here they look whether the file was written to.)
ALTER TABLE label_sets ADD COLUMN temperature REAL NOT NULL DEFAULT 1;
