-- An archive reads a post as soon as it is there, when its score is 1 and its number of comments 0 or a few; these
-- say nothing until it is read again. Reddit's own scores are as they are.
ALTER TABLE posts ADD COLUMN score_is_placeholder BOOLEAN NOT NULL DEFAULT FALSE;
