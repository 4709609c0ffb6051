-- Creates roles for users of a topicmill database who do not own it. Run this file in topicmill's database as the
-- tables' owner, after `topicmill db create` and after each upgrade:
--
--     psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f roles.sql
--
-- These are group roles, which cannot log in. docs/postgres.md explains how to add people and services as members.
-- Roles belong to the entire server, so the first run needs a user with CREATEROLE.

DO $$
DECLARE role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['topicmill_reader', 'topicmill_collector', 'topicmill_worker', 'topicmill_annotator'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- created concurrently
        END;
    END LOOP;
END $$;

-- All roles may read all tables in topicmill's schema, including tables that an upgrade adds before this file is run
-- again.
DO $$
DECLARE privilege text;
BEGIN
    FOREACH privilege IN ARRAY ARRAY[
        'GRANT USAGE ON SCHEMA %I',
        'GRANT SELECT ON ALL TABLES IN SCHEMA %I',
        'ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT ON TABLES'
    ] LOOP
        EXECUTE format(privilege || ' TO topicmill_reader, topicmill_collector, topicmill_worker, topicmill_annotator',
            current_schema());
    END LOOP;
END $$;

-- One row is hidden from all but the owner and roles that may store posts: the key of the author hashes. With this key,
-- a reader could find authors by hashing guessed names. One statement, so that no session finds the policy missing.
DO $$
BEGIN
    DROP POLICY IF EXISTS hide_author_key ON meta;
    CREATE POLICY hide_author_key ON meta
        USING (key <> 'author_key' OR has_table_privilege('things'::regclass, 'INSERT'));
    ALTER TABLE meta ENABLE ROW LEVEL SECURITY;
END $$;

-- collect, import and purge: posts and their metadata, but no labels.
GRANT INSERT, UPDATE ON runs, watermarks, topic_keywords, imports, quotas, meta TO topicmill_collector;
GRANT INSERT, UPDATE, DELETE ON things, sightings, tombstones, gaps, backlog TO topicmill_collector;
GRANT DELETE ON pair_logits, text_vectors TO topicmill_collector;

-- schedule run: the state of schedules. Each stage also needs its own role's privileges.
GRANT INSERT, UPDATE ON scheduled_runs TO topicmill_collector, topicmill_worker;

-- classify and labels fit: labels, scores and the backlog, but no posts. UPDATE on one column allows both to lock a
-- post while labelling it.
GRANT INSERT, UPDATE ON runs, meta, models, label_sets, labels, hypotheses, current_target TO topicmill_worker;
GRANT INSERT, UPDATE, DELETE ON leases, backlog, classifications, packed_scores, pair_logits, text_vectors, label_vectors
    TO topicmill_worker;
GRANT INSERT, DELETE ON cross_fitted TO topicmill_worker;
GRANT UPDATE (checked_at) ON things TO topicmill_worker;

-- serve --review: gold labels.
GRANT INSERT, UPDATE, DELETE ON gold TO topicmill_annotator;
GRANT UPDATE (checked_at) ON things TO topicmill_annotator; -- to lock a post while its answer is stored
