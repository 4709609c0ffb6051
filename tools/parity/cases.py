"""The cases: which text meets which labels, template and mode. Standard library only."""

from collections.abc import Callable
from dataclasses import dataclass

from parity.corpus import LONG

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
    """One text with its labels: what `topicmill score` receives, before it is scored."""

    name: str
    text: str
    labels: list[str]
    template: str
    mode: str
    with_ids: bool = False


def boundary_texts(window: int, prefix: Callable[[int], str]) -> dict[str, str]:
    """Texts that just fit the window with short labels and are cut with long ones.

    `prefix(n)` is the longest run of whole words of `LONG` that has at most n tokens.
    """
    return {f"{window - left} tokens": prefix(window - left) for left in range(10, 22, 3)}


def tiny_cases(window: int, prefix: Callable[[int], str]) -> list[Case]:
    """All cases of a tiny model whose pairs are cut at `window` tokens."""
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


def full_cases() -> list[Case]:
    """A handful of cases for a model of full size, where each pair costs seconds."""
    texts = TEXTS | {"very long": " ".join([LONG] * 4)}
    return [
        *grid(pick(texts, "title"), "16 labels", SIXTEEN, ABOUT, ["single"]),
        *grid(pick(texts, "post", "bart specials", "japanese"), "2 labels", TWO, DISCUSSED, ["single", "multi"]),
        *grid(pick(texts, "very long"), "1 label", ONE, ABOUT, ["single"]),
    ]


def pick(texts: dict[str, str], *names: str) -> dict[str, str]:
    """The named texts, in the order of the names."""
    return {name: texts[name] for name in names}


def grid(
    texts: dict[str, str], title: str, labels: list[str], template: str, modes: list[str], with_ids: bool = False
) -> list[Case]:
    """One case for each text and mode; the name says all that differs."""
    return [
        Case(f"{name}, {title}, {mode}, {template}", text, labels, template, mode, with_ids)
        for mode in modes
        for name, text in texts.items()
    ]
