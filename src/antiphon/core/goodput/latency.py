"""How long a call took, as its user saw it.

Times count from when the call was due, not from when it was sent: a client that is held up by the
server, or by itself, must not make the server look fast (Tene, "How not to measure latency":
coordinated omission).
"""

from itertools import pairwise

from antiphon.types import CallRecord, Seconds


def served(record: CallRecord) -> bool:
    """Whether the call came to its end with content: only then do its latencies say anything."""
    return record.error is None and bool(record.token_at_s)


def ttft_s(record: CallRecord) -> Seconds | None:
    """Time to first token: from due to the first piece of content. None: there was none."""
    return record.token_at_s[0] - record.due_at_s if record.token_at_s else None


def tpot_s(record: CallRecord) -> Seconds | None:
    """Time per output token after the first: (last − first) / (tokens − 1).

    None for a call of one token, or of none. It counts tokens, not pieces: a server that sends
    several at once gains nothing and loses nothing.
    """
    if not record.token_at_s or record.output_tokens < 2:
        return None
    return (record.token_at_s[-1] - record.token_at_s[0]) / (record.output_tokens - 1)


def e2e_s(record: CallRecord) -> Seconds:
    """End to end: from due to the call's end, whichever way it ended."""
    return record.ended_at_s - record.due_at_s


def gaps_s(record: CallRecord) -> tuple[Seconds, ...]:
    """Inter-token latencies (ITL): the gaps between pieces of content, in order.

    A piece may hold several tokens, so these are what a reader waited for the next text: their
    largest shows a stall that TPOT, being a mean, hides. None where only the ends were kept.
    """
    if record.only_ends:
        return ()
    return tuple(later - earlier for earlier, later in pairwise(record.token_at_s))
