"""The pairs on which a graph is compared with torch, written for this project."""

# Short: they stand in the manifest and are run whenever a model is loaded.
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

# Filled to a share of the model's longest pair: they are run when a graph is made.
FILLER = (
    "The climate is changing faster than the models said it would, and the coast feels it first. "
    "The home team scored twice in the last minute and won in front of a silent crowd. "
    "Researchers measured the light of a distant star and found a planet with water in its air. "
)
HYPOTHESIS = "This text is about science."
