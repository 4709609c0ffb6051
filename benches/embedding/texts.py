#!/usr/bin/env python3
"""Made-up texts with the lengths of Reddit, one JSON object a line: texts.py COUNT > FILE.

Three in ten are titles of about 15 words; the others have bodies, a median of 120 words, one in twenty over 500.
"""

import json
import math
import random
import sys

WORDS = """the a of and to in for with that this my we they after before about game team market film book train
dinner doctor school phone city summer price story music player recipe model climate village engine garden teacher
letter works runs found made think need want changed lost won started finished good old new strange small better
early late surprisingly unreasonable photosynthesis broadband goalkeeper mortgage quarterfinal""".split()

numbers = random.Random(7)


def words(count: int) -> str:
    """Words, with a full stop now and then."""
    ends = (". " if numbers.random() < 0.1 else " " for _ in range(count))
    return "".join(numbers.choice(WORDS) + end for end in ends).strip()


for i in range(int(sys.argv[1])):
    text = words(numbers.randint(8, 18))
    if numbers.random() > 0.3:
        text += "\n\n" + words(min(4000, max(4, int(108 * math.exp(0.868 * numbers.gauss(0, 1))))))
    print(json.dumps({"id": str(i), "text": text}))
