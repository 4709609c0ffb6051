-- Roles for those who use a topicmill database and do not own it. Run it as the owner of the tables, in topicmill's
-- database, after `topicmill db create` and again after each upgrade:
--
--     psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f roles.sql
--
-- These roles cannot log in: they are groups. docs/postgres.md says how people and services become members.
-- Roles belong to the whole server, so whoever runs this for the first time needs the right CREATEROLE.

DO $$
DECLARE role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['topicmill_reader', 'topicmill_collector', 'topicmill_worker', 'topicmill_reviewer'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- somebody else just made it
        END;
    END LOOP;
END $$;

-- All of them read everything, also what an upgrade adds before this file runs again.
GRANT USAGE ON SCHEMA public TO topicmill_reader, topicmill_collector, topicmill_worker, topicmill_reviewer;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO topicmill_reader, topicmill_collector, topicmill_worker, topicmill_reviewer;
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT ON TABLES TO topicmill_reader, topicmill_collector, topicmill_worker, topicmill_reviewer;

-- collect, import and purge: posts and what is known of them. No label.
GRANT INSERT, UPDATE ON runs, watermarks, imports, quotas, meta TO topicmill_collector;
GRANT INSERT, UPDATE, DELETE ON posts, sightings, tombstones, gaps, backlog TO topicmill_collector;
GRANT DELETE ON pair_logits, text_vectors TO topicmill_collector;
-- Thinning sums old runs up.
GRANT DELETE ON runs TO topicmill_collector;
GRANT INSERT, UPDATE ON run_days TO topicmill_collector;

-- schedule run: what ran when. Its stages need what they need.
GRANT INSERT, UPDATE ON schedules, scheduled_runs TO topicmill_collector, topicmill_worker;

-- classify: labels, scores and the queue. No post: the right on one column lets it hold a post while it is labelled.
GRANT INSERT, UPDATE ON runs, meta, models, label_sets, labels, hypotheses, current_target TO topicmill_worker;
GRANT INSERT, UPDATE, DELETE ON leases, backlog, classifications, packed_scores, pair_logits, text_vectors, label_vectors
    TO topicmill_worker;
GRANT UPDATE (checked_at) ON posts TO topicmill_worker;

-- serve --review: what people say is right.
GRANT INSERT, UPDATE, DELETE ON gold TO topicmill_reviewer;
