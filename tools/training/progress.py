"""Where a training is: a bar on a terminal, else a line now and then.

In go steps with their loss and their tokens, and the macro-F1 of each epoch; out come loss, macro-F1, tokens a second
and the time that is left, on stderr.
"""

import sys
import time
from collections.abc import Callable

from tqdm import tqdm

Say = Callable[[str], None]

SOON = 30.0  # seconds between two lines where there is no terminal


class Meter:
    """Counts steps, and shows them."""

    def __init__(self, step: int, steps: int, say: Say):
        self.step, self.steps, self.say = step, steps, say
        self.first, self.begun, self.shown, self.tokens = step, time.monotonic(), time.monotonic(), 0
        self.macro_f1: float | None = None
        self.bar = None
        if sys.stderr.isatty():
            form = "{percentage:3.0f} %|{bar}| {n_fmt} of {total_fmt}{postfix}"
            self.bar = tqdm(total=steps, initial=step, bar_format=form, leave=False, dynamic_ncols=True)

    @property
    def tokens_per_second(self) -> float:
        """Since the beginning, or since the training went on."""
        return self.tokens / max(time.monotonic() - self.begun, 1e-9)

    def after(self, step: int, loss: float, tokens: int) -> None:
        """A step is done."""
        self.step, self.tokens = step, self.tokens + tokens
        line = self.line(loss)
        if self.bar is not None:
            self.bar.set_postfix_str(line, refresh=False)
            self.bar.update(step - self.bar.n)
        elif time.monotonic() - self.shown > SOON:
            self.shown = time.monotonic()
            self.say(f"step {step} of {self.steps}: {line}")

    def line(self, loss: float) -> str:
        """`loss 0.512, macro-F1 0.803, 3,214 tokens/s, 2 min left`."""
        parts = [f"loss {loss:.3f}"]
        if self.macro_f1 is not None:
            parts.append(f"macro-F1 {self.macro_f1:.3f}")
        parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        done = self.step - self.first
        left = (time.monotonic() - self.begun) / max(done, 1) * (self.steps - self.step)
        return ", ".join([*parts, f"{in_words(left)} left"])

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()


def in_words(seconds: float) -> str:
    """A time that people read: `40 s`, `12 min`, `1 h 5 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
