"""The rows of the table: what is measured, in which unit, and what we want to reach."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing to measure. `kind` and the sizes are as in `contestant.Setup`.

    `goal` is the ratio to the best peer that we are to reach, `stretch` a farther one.
    """

    name: str
    text: str
    kind: str
    cores: int = 1
    sequences: int = 1
    context: int = 0
    tokens: int = 512
    goal: float | None = None
    stretch: float | None = None

    @property
    def work(self) -> int:
        """Tokens of a pass."""
        return self.tokens * self.sequences


def prefill(name: str, text: str, **more) -> Row:
    return Row(name=name, text=f"prefill, {text}", kind="prefill", **more)


def decode(sequences: int, **more) -> Row:
    """Steps that begin a little below 540 tokens of context and end a little above."""
    text = f"decode, {sequences} sequence{'s'[: sequences > 1]}, context about 540"
    return Row(
        name=f"decode-{sequences}",
        text=text,
        kind="decode",
        sequences=sequences,
        context=512,
        tokens=8,
        **more,
    )


ROWS = (
    prefill("prefill", "512-token prompts", goal=1.5, stretch=1.8),
    prefill("prefill-2", "512-token prompts, two cores", cores=2),
    prefill("prefill-4k", "tokens 3,584 to 4,096 of a prompt", context=3584, goal=1.5),
    decode(1, goal=1.5),
    decode(8, goal=2.2),
    decode(32, goal=1.6, stretch=2.0),
    Row(name="start", text="command to first answer (the row `memory` too)", kind="start"),
)
TWO_CORES_GOAL = 1.7
"""Prefill on two cores to prefill on one."""
START_PEER = "OpenVINO GenAI"
START_GOAL = 1.0
"""Our time to the first answer to `START_PEER`'s, at most."""
MEMORY_GOAL_MB = 700
