-- What people said about labels: one answer of a person about a post. It goes with the post.
CREATE TABLE gold (
    fullname         TEXT NOT NULL REFERENCES posts (fullname) ON DELETE CASCADE,
    reviewer         TEXT NOT NULL,
    label            TEXT, -- slug of the right label; NULL: none of those that were offered
    label_set_id     BIGINT REFERENCES label_sets (id) ON DELETE SET NULL, -- whose labels were offered
    text_hash        BYTEA NOT NULL, -- of the text that the answer is about, as in posts
    chosen           TEXT NOT NULL, -- why this post: random, closest, import
    in_random_sample BOOLEAN NOT NULL DEFAULT FALSE, -- one of the posts that stand for all
    source           TEXT NOT NULL, -- review, import, label-studio, argilla
    answered_at      TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (fullname, reviewer)
);
