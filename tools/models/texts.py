"""The pairs on which a graph is compared with torch, written for this project."""

# Short, because they are in the manifest and run whenever the model is loaded.
VECTORS = [
    ("politics", "This text is about politics."),
    ("Is an index fund better than paying the loan early?", "This example is personal finance."),
    (
        "Night train to the north, four days along the lake\n\nWe woke up by the water. What should we cook on the "
        "last day? The doctor says that fish is fine.",
        "This text is about travel.",
    ),
    ("Größere Züge fahren wieder 🚆, and a literal </s> or [SEP] is text.", "The topic science is discussed here."),
]

# Repeated to make long texts, which are run only when a graph is made.
FILLER = (
    "The climate is changing faster than the models said it would, and the coast feels it first. "
    "The home team scored twice in the last minute and won in front of a silent crowd. "
    "Researchers measured the light of a distant star and found a planet with water in its air. "
)
HYPOTHESIS = "This text is about science."

# Short posts and their labels, to measure cosines of matching texts in an embedding model.
LABELLED = [
    ("The keeper saved a penalty in the last minute, and we are in the final.", "football"),
    ("How long do you let the dough rest before the bread goes into the oven?", "cooking"),
    ("My landlord keeps the deposit and does not answer my letters.", "renting a flat"),
    ("The new telescope found water in the air of a distant planet.", "astronomy"),
    ("Our puppy chews every shoe that it finds, and barks at night.", "dogs"),
    ("Which chords does the guitar play in the chorus of this song?", "music"),
]

# The labels of a GLiClass model's vectors: the same for each vector, so that all vectors fit in one batch.
GLICLASS_LABELS = ("politics", "personal finance, loans", "Züge {und} Bahnhöfe")
