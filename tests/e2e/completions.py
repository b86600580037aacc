"""Completions asked of a server, and their answers in one form, streamed or not."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from e2e_process import PLAIN, Served

AT_ONCE = 16
"""Requests that are under way together: they share steps, in whatever order they come."""
_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def ask(served: Served, **body: Any) -> list[dict[str, Any]]:
    """The choices of one answer, in the order of their index."""
    url = f"{served.url}/v1/completions"
    answer = httpx.post(url, json=body, timeout=120, verify=PLAIN)
    assert answer.status_code == 200, answer.text
    return sorted(answer.json()["choices"], key=lambda choice: choice["index"])


def ask_streamed(served: Served, **body: Any) -> list[dict[str, Any]]:
    """The same of a stream: what its chunks add up to."""
    choices: dict[int, dict[str, Any]] = {}
    url = f"{served.url}/v1/completions"
    body = {**body, "stream": True}
    with httpx.stream("POST", url, json=body, timeout=120, verify=PLAIN) as response:
        assert response.status_code == 200, response.read()
        for line in lines_of(response):
            add_line(choices, line)
    return [choices[index] for index in sorted(choices)]


class Lines:
    """What comes between line feeds; httpx would cut a text at U+2028 and its like, too."""

    def __init__(self) -> None:
        self._rest = b""

    def of(self, part: bytes) -> list[str]:
        """The lines that `part` ends."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        return [line.decode() for line in lines]


def lines_of(response: httpx.Response) -> Iterator[str]:
    """Those of a stream of events, which ends with one."""
    lines = Lines()
    for part in response.iter_bytes():
        yield from lines.of(part)


def add_line(choices: dict[int, dict[str, Any]], line: str) -> None:
    """Add what a line of a stream says to the choices, by index; mutates them."""
    if not line.startswith("data: {"):
        return
    event = json.loads(line.removeprefix("data: "))
    assert "error" not in event, event
    for part in event["choices"]:
        _add(choices, part)


def _add(choices: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    whole = choices.setdefault(part["index"], {**part, "text": "", "logprobs": None})
    assert whole["finish_reason"] is None or not part["text"], "text after the end"
    whole["text"] += part["text"]
    whole["finish_reason"] = part["finish_reason"] or whole["finish_reason"]
    if scored := part["logprobs"]:
        if whole["logprobs"] is None:
            whole["logprobs"] = {name: [] for name in _LISTS}
        for name in _LISTS:
            whole["logprobs"][name] += scored[name]


def ask_all(
    served: Served, bodies: Sequence[dict[str, Any]], *, streamed: bool = False
) -> list[list[dict[str, Any]]]:
    """All answers, in the order of `bodies`, asked many at a time."""
    how = ask_streamed if streamed else ask
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(lambda body: how(served, **body), bodies))
