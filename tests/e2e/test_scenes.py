"""What happens in the middle of a hand-over: clients leave, memory is damaged.

The scenes are played once, on one cluster; then its decision logs say what happened, in steps and
tokens. Workers are made to stand still where a scene needs them to be in the middle of something.
"""

import contextlib
import json
import os
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from completions import ask
from e2e_process import Metrics, Served, at_rest, config_file, joined, standing_still
from tape import Tape

from antiphon.store.transfer.region_header import HEADER_BYTES, RegionHeader

MODEL = "smollm2-135m"
"""Slow enough that one sees it in the middle of something."""
BUDGET = 8
"""Tokens of a step: so few that a long prompt takes many of them."""
LONG = 4000
"""Steps enough to be seen in a heartbeat, however fast the machine."""
PREFILLING, MOVING, DECODING, NEXT = 10, 11, 12, 13
"""A scene's request is known by the first token of its prompt."""
DAMAGED = 14
CROWD = range(20, 30)


def prompt(first: int, length: int) -> list[int]:
    chance = random.Random(first)
    return [first, *(chance.randrange(40, 250) for _ in range(length - 1))]


class Client:
    """A connection that has asked for a completion. `leave` closes it."""

    def __init__(self, served: Served, first: int, length: int, **fields: Any) -> None:
        body = {
            "model": MODEL,
            "prompt": prompt(first, length),
            "max_tokens": 300,
            "ignore_eos": True,
            **fields,
        }
        content = json.dumps(body).encode()
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._socket = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        self._socket.sendall(head.encode() + content)

    def read_until(self, text: bytes, times: int) -> None:
        """Return when the answer so far has that text that often."""
        answer = b""
        while answer.count(text) < times:
            part = self._socket.recv(65536)
            assert part, answer
            answer += part

    def leave(self) -> None:
        self._socket.close()


def left_alone(status: dict[str, Any]) -> bool:
    """The gateway has nobody to answer."""
    return status["open_requests"] == 0


def offered(metrics: Metrics) -> bool:
    """An offer is there, and somebody was chosen to take it."""
    return metrics("antiphon_leases") == 1 and not metrics("antiphon_held_requests")


def play_prefilling(served: Served, pids: dict[str, int]) -> None:
    client = Client(served, PREFILLING, LONG, stream=True)
    served.until_metrics(lambda m: m("vllm:num_requests_running", worker="prefill-0") == 1)
    with standing_still(pids["prefill-0"]):
        client.leave()
        served.until(left_alone)


def play_moving(served: Served, pids: dict[str, int]) -> None:
    """The taker is told of the offer while it stands still; when it wants to read the pages, it is
    the owner that doesn't answer."""
    with contextlib.ExitStack() as owner:
        with standing_still(pids["decode-0"]):
            client = Client(served, MOVING, 60, n=2)
            served.until_metrics(offered)
            owner.enter_context(standing_still(pids["prefill-0"]))
        served.until_metrics(lambda m: m("antiphon_pulling_requests") == 1)
        client.leave()
        served.until_metrics(lambda m: not m("antiphon_pulling_requests"))


def play_decoding(served: Served, pids: dict[str, int]) -> None:
    client = Client(served, DECODING, 60, stream=True, n=2)
    client.read_until(b"data: {", times=6)
    with standing_still(pids["decode-0"]):
        client.leave()
        served.until(left_alone)


def play_damaged(served: Served, pids: dict[str, int]) -> None:
    """One bit of each page is turned over between the offer and the pull."""
    body = {"model": MODEL, "prompt": prompt(DAMAGED, 60), "seed": 1, "n": 2, "max_tokens": 6}
    expected = ask(served, **body)
    with ThreadPoolExecutor(1) as thread:
        with standing_still(pids["decode-0"]):
            answer = thread.submit(ask, served, **body)
            served.until_metrics(offered)
            damage_pages(pids["prefill-0"])
        assert answer.result() == expected
    metrics = served.metrics()
    assert metrics("antiphon_failed_pulls_total") == 1
    assert metrics("antiphon_recomputed_tokens_total") >= 60


def damage_pages(pid: int) -> None:
    """Turn over a bit in each page of a worker's KV memory: in its own mapping, as nobody else can
    write to it."""
    descriptors = Path(f"/proc/{pid}/fd").iterdir()
    path = next(fd for fd in descriptors if "memfd:antiphon-kv" in str(fd.readlink()))
    with path.open("rb", buffering=0) as file:
        header = RegionHeader.decoded(file.read(HEADER_BYTES), path.stat().st_size)
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    mine = next(line.split() for line in maps if "memfd:antiphon-kv" in line and " rw" in line)
    start = int(mine[0].partition("-")[0], 16) - int(mine[2], 16)
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        for page in range(header.pages):
            at = start + header.pages_at + page * header.page_bytes + 100
            (byte,) = os.pread(memory.fileno(), 1, at)
            os.pwrite(memory.fileno(), bytes([byte ^ 1]), at)


def play_crowd(served: Served, pids: dict[str, int]) -> None:
    """Ten long prompts, some of them begun, are given up, and somebody comes who stays.

    They come while the worker stands still, so that none is done before the last one is there.
    """
    with standing_still(pids["prefill-0"]):
        clients = [Client(served, first, LONG, stream=bool(first % 2)) for first in CROWD]
        served.until(lambda status: status["open_requests"] == len(CROWD))
    served.until_metrics(lambda m: m("vllm:num_requests_running", worker="prefill-0") > 0)
    for client in clients:
        client.leave()
    served.until(left_alone)
    ask(served, model=MODEL, prompt=prompt(NEXT, 20), max_tokens=3, ignore_eos=True)


@pytest.fixture(scope="module")
def tapes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tape]]:
    """What both workers did in all scenes."""
    folder = tmp_path_factory.mktemp("cancel")
    file = config_file(
        folder / "cluster.toml",
        model={"name": MODEL},
        http={"port": 0},
        kv={"memory_bytes": "256MiB", "prefix_cache": False},
        scheduler={"max_batched_tokens": BUDGET, "max_num_seqs": BUDGET},
        cluster={"prefill": 1, "decode": 1, "heartbeat_s": 0.5, "lost_after_s": 60},
        router={"tpot_s": 0.0001},
        log={"decisions": str(folder / "log.jsonl")},
    )
    served = Served("serve", str(file))
    try:
        pids = {worker["id"]: worker["pid"] for worker in served.until(joined)["workers"]}
        for play in (play_damaged, play_prefilling, play_moving, play_decoding):
            play(served, pids)
            served.until_metrics(at_rest)
        play_crowd(served, pids)
        served.until_metrics(at_rest)
        assert served.stop() == 0, "".join(served.output)
    finally:
        served.process.kill()
    yield {name: Tape(folder / f"log.{name}.jsonl") for name in pids}


def test_before_the_first_token_a_cancel_frees_the_prefill_worker(tapes: dict[str, Tape]) -> None:
    """Dynamo 13691: a cancel that comes before the first token must reach whoever computes."""
    tape = tapes["prefill-0"]
    id = tape.request(PREFILLING).id
    cancel = tape.index("abort", id)
    assert 0 < tape.computed(id, end=cancel) < LONG, "it was in the middle"
    assert tape.computed(id, start=cancel) == 0
    assert tape.steps_until_free(cancel) <= 1


def test_while_kv_moves_a_cancel_frees_both_sides(tapes: dict[str, Tape]) -> None:
    """vLLM 46283: an abort while KV is waited for, with an owner that doesn't answer either."""
    taker, owner = tapes["decode-0"], tapes["prefill-0"]
    id = taker.request(MOVING).id
    cancel = taker.index("abort", id)
    assert taker.moments[cancel - 1].view.pulling == 1, "it was in the middle"
    assert taker.steps_until_free(cancel) == 0
    assert taker.computed(id) == 0
    lease = owner.moments[owner.index("add", id)].facts["lease"]
    end = next(i for i, m in enumerate(owner.moments) if m.facts.get("lease") == lease
               and m.method in ("release", "acknowledge"))  # fmt: skip
    assert owner.moments[end].method == "release"
    assert owner.moments[end - 1].view.leases == 1
    assert owner.steps_until_free(end) == 0


def test_while_decoding_a_cancel_frees_the_decode_worker(tapes: dict[str, Tape]) -> None:
    tape = tapes["decode-0"]
    id = tape.request(DECODING).id
    cancel = tape.index("abort", id)
    assert tape.moments[cancel - 1].view.running_sequences == 2, "it was in the middle"
    assert tape.computed(id, start=cancel) == 0
    assert tape.steps_until_free(cancel) <= 1


def test_ten_cancelled_prompts_delay_the_next_one_by_no_more_than_a_step(
    tapes: dict[str, Tape],
) -> None:
    """Dynamo 14775: ten prompts that nobody wanted any more blocked the next for a minute."""
    tape = tapes["prefill-0"]
    ids = [tape.request(first).id for first in CROWD]
    cancels = [tape.index("abort", id) for id in ids]
    assert sum(tape.computed(id) for id in ids) < len(ids) * LONG / 2, "most was still to do"
    for id, cancel in zip(ids, cancels, strict=True):
        assert tape.computed(id, start=cancel) == 0
    next_one = tape.request(NEXT).id
    came = tape.index("add", next_one)
    began = tape.first_chunk(next_one)
    assert max(cancels) < came < began
    between = [moment for moment in tape.moments[came:began] if moment.plan]
    assert between == [], "only the step that was under way stands before it"


def test_pages_that_were_damaged_on_the_way_are_computed_and_not_read(
    tapes: dict[str, Tape],
) -> None:
    """TensorRT-LLM 19545, vllm-ascend 8427, wtdcode 33: a transfer that had gone wrong was called
    a success, and answers were garbage. That the answer is right was asserted in the scene."""
    taker = tapes["decode-0"]
    good, damaged = (
        moment.facts["request"]
        for moment in taker.moments
        if moment.method == "adopt" and moment.facts["request"].prompt[0] == DAMAGED
    )
    for request, had in ((good, True), (damaged, False)):
        pulled = taker.moments[taker.index("pulled", request.id)]
        assert set(pulled.facts["good"]) == {had}
        assert (taker.computed(request.id) < len(request.prompt)) == had
