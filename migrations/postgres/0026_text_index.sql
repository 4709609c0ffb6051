-- A hash is as good as random, so each new post changed a page of its own in the index of hashes: a quarter of the time of an
-- import. What asks for the posts of a text asks for labelled ones, so labels have the index now. Its condition holds for every
-- label: only a statement that has it as well takes this index, and not a join of posts and labels, which would read in the order
-- of the hashes.
DROP INDEX IF EXISTS posts_text_hash;
CREATE INDEX classifications_text ON classifications (text_hash, fullname) WHERE text_hash >= '';
