"""Texts written for this project to train the tokenizers, and the golden cases: combinations of texts and labels."""

from collections.abc import Callable
from dataclasses import dataclass

ENGLISH = """\
The climate is changing faster than the models said it would, and the coast feels it first.
A new phone came out today, and the old one is already slower than it was last week.
The home team scored twice in the last minute and won the match in front of a silent crowd.
I put a little money aside every month; is an index fund better than paying the loan early?
My doctor says that the new medicine is safe, but I still feel tired in the morning.
Our teachers want smaller classes, better books and an hour a week without any test.
This game is far too long, the last boss is unfair, and I have played it three times anyway.
The vote in parliament was close, and nobody knows what the minister will do next.
Researchers measured the light of a distant star and found a planet with water in its air.
The film is slow and beautiful, and its last scene is about nothing but two people eating soup.
She plays the second violin, and the whole piece would fall apart without her.
What is the best book about the sea that is not about a whale?
Cook the onions slowly, add the rice, and do not stir it until the water is gone.
We took the night train to the north and walked along the lake for four days.
He forgot my birthday again, and I do not know how to talk with him about it.
In the year of the great fire the town had nine hundred houses and one pump.
This text is about science. This example is technology. The topic politics is discussed here.
climate change, technology, sports, finance, health, education, gaming, politics
science, movies, music, books, food, travel, relationships, history
Does anybody else think that the update made everything worse? Edit: thank you for the answers!
Question about taxes: I moved from one country to another in the middle of the year.
"""

OTHER_SCRIPTS = """\
Die Straße über die Brücke ist gesperrt, und größere Züge fahren erst am Übermorgen wieder.
Schöne Grüße aus Österreich: die Bücher sind teurer, aber die Küche ist besser geworden.
今日は天気がいいので、公園で本を読みました。
新しい電話は高いですが、とても速いです。
आज मौसम अच्छा है और मैं किताब पढ़ रहा हूँ।
नई फ़िल्म बहुत लंबी है, लेकिन संगीत अच्छा है।
الطقس جميل اليوم وأنا أقرأ كتابا في الحديقة.
الفيلم الجديد طويل جدا ولكن الموسيقى جميلة.
"""

LINES = (ENGLISH + OTHER_SCRIPTS).splitlines()
LONG = " ".join(ENGLISH.split())

ABOUT = "This text is about {}."
EXAMPLE = "This example is {}."
DISCUSSED = "The topic {} is discussed here, isn't it?"

ONE = ["technology"]
TWO = ["science", "personal finance and investing"]
ODD = [
    "arts, crafts and hobbies",
    "Größe & Maß",
    "映画",
    "🎮 gaming",
    "a </s> b [SEP] c",
    "{} {x}",
    "&quot;quoted&quot;",
    "SHOUTING",
    " spaces around ",
    'it\'s "both"',
]
SIXTEEN = [
    "climate change", "technology", "sports", "finance", "health", "education", "gaming", "politics",
    "science", "movies", "music", "books", "food", "travel", "relationships", "history",
]  # fmt: skip
FORTY = [
    *SIXTEEN,
    "animals", "architecture", "astronomy", "baking", "board games", "cars", "cats", "chess",
    "cycling", "dance", "dogs", "economics", "fashion", "fishing", "gardening", "geography",
    "humour", "knitting", "law", "mathematics", "news", "philosophy", "photography", "sailing",
]  # fmt: skip

TITLE = "Is an index fund better than paying the loan early?"
POST = (
    "Night train to the north, four days along the lake\n\n"
    "We took the train at ten and woke up by the water. What should we cook on the last day? "
    "The doctor says that fish is fine."
)

TEXTS = {
    "title": TITLE,
    "one word": "politics",
    "post": POST,
    "markdown": "**Edit:** see [this](https://example.org/a_b?c=d&e=f#g)\n\n* one\n* two\n\n> quoted\n\n`code()`",
    "empty": "",
    "blanks": "   ",
    "newlines and tabs only": "\n\t \r\n",
    "blanks around": "  \n the home team scored twice \t\n ",
    "newlines and tabs": "first line\nsecond\tcolumn\r\nthird line\n\n\n\nfourth",
    "bart specials": "before </s> middle <s> and <pad> or <mask> and <unk> after</s></s>",
    "bert specials": "before [SEP] middle [CLS] and [PAD] or [MASK] and [UNK] after[SEP][SEP]",
    "only a special": "</s>",
    "emoji": "🔥🔥 new phone!!! 👩‍👩‍👧‍👦 👍🏽 🇩🇪 ☕️",
    "japanese": "今日は天気がいいので、公園で本を読みました。新しい電話は高いです。",
    "hindi": "आज मौसम अच्छा है और मैं किताब पढ़ रहा हूँ।",
    "arabic": "الطقس جميل اليوم وأنا أقرأ كتابا في الحديقة.",
    "german": "Schöne Grüße aus Österreich: größere Züge fahren über die Brücke. ÄÖÜ ẞ",
    "decomposed": "Scho\u0308ne Gru\u0308\u00dfe, cafe\u0301, \ufb01lm, \u2460, \uff21\uff22\uff23",
    "mixed scripts": "Πρωινός καφές, утренний кофе, 早晨咖啡, קפה, 아침 커피",
    "html entities": "Tom &amp; Jerry &lt;b&gt;bold&lt;/b&gt; &#39;quoted&#39; &nbsp;&#x200B; x &gt; y",
    "invisible": "a\u0000b\u0001c\u200bd\u00ade\ufefff\ufffdg\u00a0h\u2028i\u3000j",
    "stacked marks": "z\u0351\u036b\u0343a\u0340\u0341\u0342l\u0360\u0362g\u0315o\u035d " * 4,
    "long word": "a" * 150 + " and " + "https://example.org/" + "x1y2" * 60,
    "long": LONG,
    "long emoji": "🔥👍🏽☕️" * 60,
    "long japanese": "新しい電話は高いですが、とても速いです。" * 30,
    "long blanks first": " \n" * 1500 + "The film is slow and beautiful.",
}


@dataclass(frozen=True)
class Case:
    """One text with its labels: the input of `topicmill score`."""

    name: str
    text: str
    labels: list[str]
    template: str
    mode: str
    with_ids: bool = False


def boundary_texts(window: int, prefix: Callable[[int], str]) -> dict[str, str]:
    """Returns texts that just fit the window with short labels and are truncated with long ones.

    `prefix(n)` is the longest run of whole words from `LONG` with at most n tokens.
    """
    return {f"{window - left} tokens": prefix(window - left) for left in range(10, 22, 3)}


def tiny_cases(window: int, prefix: Callable[[int], str]) -> list[Case]:
    """Returns all cases for a model that truncates pairs at `window` tokens."""
    texts = TEXTS | boundary_texts(window, prefix)
    return [
        *grid(texts, "16 labels", SIXTEEN, ABOUT, ["single"]),
        *grid(pick(texts, "title", "post", "emoji", "long"), "16 labels", SIXTEEN, EXAMPLE, ["multi"]),
        *grid(pick(texts, "title", "long"), "1 label", ONE, ABOUT, ["single", "multi"]),
        *grid(pick(texts, "bart specials", "bert specials", "long"), "2 labels", TWO, DISCUSSED, ["single"], True),
        *grid(pick(texts, "post", "blanks"), "2 labels", TWO, DISCUSSED, ["multi"]),
        *grid(pick(texts, "title", "german"), "odd labels", ODD, EXAMPLE, ["single", "multi"]),
        *grid(pick(texts, "post"), "40 labels", FORTY, ABOUT, ["single", "multi"]),
    ]


def pick(texts: dict[str, str], *names: str) -> dict[str, str]:
    """Returns the named texts, in the order of the names."""
    return {name: texts[name] for name in names}


def grid(
    texts: dict[str, str], title: str, labels: list[str], template: str, modes: list[str], with_ids: bool = False
) -> list[Case]:
    """Returns one case for each text and mode, with a name that distinguishes it."""
    return [
        Case(f"{name}, {title}, {mode}, {template}", text, labels, template, mode, with_ids)
        for mode in modes
        for name, text in texts.items()
    ]
