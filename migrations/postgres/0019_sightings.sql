-- An import stores a sighting with each post. To check the two foreign keys of a sighting took more time than everything else
-- of it. Nothing needs the check: who stores sightings has stored their posts a moment before, and holds them. What the keys
-- deleted, these triggers delete, whoever deletes a post or a run. Without a sequential scan, because a plan stays for as long as a
-- connection, and one that was made while the table was small would read all of it for each post. As it was with the keys, whoever
-- deletes a post needs no right on its sightings, and may have another search path.
ALTER TABLE sightings DROP CONSTRAINT IF EXISTS sightings_fullname_fkey;
ALTER TABLE sightings DROP CONSTRAINT IF EXISTS sightings_run_id_fkey;
CREATE FUNCTION topicmill_forget_sightings() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    IF TG_TABLE_NAME = 'posts' THEN
        DELETE FROM sightings WHERE fullname = OLD.fullname;
    ELSE
        DELETE FROM sightings WHERE run_id = OLD.id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER posts_forget_sightings AFTER DELETE ON posts
    FOR EACH ROW EXECUTE FUNCTION topicmill_forget_sightings();
CREATE TRIGGER runs_forget_sightings AFTER DELETE ON runs
    FOR EACH ROW EXECUTE FUNCTION topicmill_forget_sightings();
