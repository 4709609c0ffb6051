-- What the logits of a label set are divided by before they become scores.
ALTER TABLE label_sets ADD COLUMN temperature DOUBLE PRECISION NOT NULL DEFAULT 1;

-- Tells watching workers of new posts, whoever stores them.
CREATE FUNCTION topicmill_notify_posts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('topicmill_posts', '');
    RETURN NULL;
END $$;
CREATE TRIGGER posts_notify AFTER INSERT OR UPDATE OF text_hash ON posts
    FOR EACH STATEMENT EXECUTE FUNCTION topicmill_notify_posts();
