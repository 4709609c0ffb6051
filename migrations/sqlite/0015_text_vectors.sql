-- What an embedding model made of a text: computed once, for all labels that there will ever be. `pair_logits` takes no
-- new rows of such models.
CREATE TABLE text_vectors (
    model_id  INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    text_hash BLOB NOT NULL, -- of the text, as in posts
    vector    BLOB NOT NULL, -- a 32-bit float, then 16-bit whole numbers that it multiplies; little-endian
    PRIMARY KEY (model_id, text_hash)
);

-- What it made of a label and its descriptions.
CREATE TABLE label_vectors (
    model_id      INTEGER NOT NULL REFERENCES models (id) ON DELETE CASCADE,
    hypothesis_id INTEGER NOT NULL REFERENCES hypotheses (id) ON DELETE CASCADE,
    vector        BLOB NOT NULL, -- 32-bit floats, little-endian: a scale, then a vector, of a background several
    PRIMARY KEY (model_id, hypothesis_id)
);
