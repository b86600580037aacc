"""A long document asked twice: how soon the second answer begins, and what must survive for that.

    .venv/bin/python benchmarks/reuse.py            write results/reuse.json
    .venv/bin/python benchmarks/reuse.py --quick    two short documents; writes nothing
    .venv/bin/python benchmarks/reuse.py --help     lengths, cores, memory

One cluster of two mixed workers and a store with a disk tier, on two cores. Each document is asked

    first      when nobody has its KV: the time to first token that the others are compared with
    same       again, of the same worker
    other      of the other worker, whose KV memory has never held it
    workers    after all workers were killed (SIGKILL) and started again
    store      after the store was killed with them: what it kept is on its disk

and each answer must be the same text. Workers are chosen by draining the other one.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support import result

from antiphon.bench import Answer, Client, Server
from antiphon.drill import LocalTarget, started
from antiphon.live.admin.client import AdminClient, find_server
from antiphon.workload import Ask
from antiphon.workload.trace_prompts import block_words

GOALS = {"same": 0.05, "other": 0.06, "workers": 0.06, "store": 0.1}
"""Time to first token, as a share of the first's."""
SEED = 1
MAX_TOKENS = 16
WORKERS = ("mixed-0", "mixed-1")
DEADLINE_S = 120.0
POLL_S = 0.05
QUESTION = "\n\nWhat is said above, in one sentence?"


@dataclass
class Document:
    """One text, and what came of each time that it was asked."""

    number: int
    words: int
    answers: dict[str, Answer] = field(default_factory=dict)

    def ask(self) -> Ask:
        """No two documents begin alike, so nothing is shared but the chat template's beginning."""
        text = " ".join(block_words(self.number, SEED, self.words)) + QUESTION
        return Ask(number=self.number, text=text, max_tokens=MAX_TOKENS, temperature=0.0, seed=SEED)

    def ratio(self, scene: str) -> float:
        return ttft_s(self.answers[scene]) / ttft_s(self.answers["first"])


def ttft_s(answer: Answer) -> float:
    assert answer.ttft_s is not None
    return answer.ttft_s


class Cluster:
    """The running cluster, as this benchmark handles it."""

    def __init__(self, target: LocalTarget, client: Client, settle_s: float) -> None:
        self.target, self.client, self.settle_s = target, client, settle_s
        self._admin: AdminClient = find_server(target.url, None)

    async def ask_all(self, documents: Sequence[Document], scene: str) -> None:
        """One after the other, so that each has the machine to itself."""
        for document in documents:
            answer = await self.client.send(document.ask())
            if not answer.ok:
                raise SystemExit(f"{scene}: document {document.number} failed: {answer.error}")
            first = document.answers.setdefault("first", answer)
            if answer.choices[0].text != first.choices[0].text:
                raise SystemExit(
                    f"{scene}: document {document.number} has another answer:\n"
                    f"{first.choices[0].text!r}\n{answer.choices[0].text!r}"
                )
            document.answers[scene] = answer
        await asyncio.sleep(self.settle_s)  # what is written behind reaches the store, and its disk

    async def only(self, worker: str) -> None:
        """Let all requests go to this worker."""
        await asyncio.to_thread(self._admin.order, worker, "role", DEADLINE_S, role="mixed")
        for one in WORKERS:
            if one != worker:
                await asyncio.to_thread(self._admin.order, one, "drain", DEADLINE_S)

    async def kill_workers(self) -> None:
        """SIGKILL to all of them; back when each has a new process that has joined."""
        before = {worker.id: worker.pid for worker in (await self.target.status()).workers}
        for pid in before.values():
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        await self._until(
            lambda now: all(w.health == "joined" and w.pid != before[w.id] for w in now.workers)
        )
        await asyncio.sleep(self.settle_s)

    async def kill_all(self) -> None:
        """The same, and the store first."""
        old = self.store_pid()
        if old is None:
            raise SystemExit("there is no store's process beside the workers")
        os.kill(old, signal.SIGKILL)
        await self.kill_workers()
        await self._until(lambda _: self.store_pid() not in (None, old))
        await asyncio.sleep(self.settle_s)

    def store_pid(self) -> int | None:
        """The supervisor's child that is the store."""
        parent = self.target.supervisor_pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for pid in children:
            try:
                if b"store_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
            except OSError:
                pass  # it has just ended
        return None

    async def _until(self, good: Callable[[object], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not good(await self.target.status()):
            if time.monotonic() > deadline:
                raise SystemExit(f"the cluster was not back after {DEADLINE_S:g} s")
            await asyncio.sleep(POLL_S)


async def measure(options: argparse.Namespace, say: Callable[[str], None]) -> list[Document]:
    """All documents with all their answers."""
    documents = [Document(number, options.words) for number in range(options.documents)]
    with tempfile.TemporaryDirectory(prefix="antiphon-reuse-", dir=options.store_dir) as folder:
        arguments = ["--mixed", "2", "--cores", options.cores, "--kv-memory", options.kv_memory]
        arguments += ["--store-memory", options.store_memory, "--store-disk", options.store_disk]
        arguments += ["--store-dir", folder]
        async with (
            started(arguments) as target,
            Client(Server(url=target.url, model=target.model)) as client,
        ):
            cluster = Cluster(target, client, options.settle)
            await cluster.ask_all([Document(10**6 + n, 100) for n in range(8)], "warm-up")
            for scene, prepare in (
                ("first", lambda: cluster.only(WORKERS[0])),
                ("same", None),
                ("other", lambda: cluster.only(WORKERS[1])),
                ("workers", cluster.kill_workers),
                ("store", cluster.kill_all),
            ):
                if prepare is not None:
                    await prepare()
                await cluster.ask_all(documents, scene)
                say(line_of(scene, documents))
    return documents


def line_of(scene: str, documents: Sequence[Document]) -> str:
    row = summary(scene, documents)
    goal = f"goal {GOALS[scene]}" if scene in GOALS else ""
    return (
        f"{scene:8} TTFT {row['ttft_s']['median']:7.3f} s  "
        f"{row['ratio']['median']:6.4f}× ({row['ratio']['lowest']:.4f} … "
        f"{row['ratio']['highest']:.4f})  cached {row['cached_share']:.1%}  {goal}"
    )


def summary(scene: str, documents: Sequence[Document]) -> dict[str, object]:
    """What is kept of one scene: over all documents."""
    answers = [document.answers[scene] for document in documents]
    cached = sum(answer.cached_tokens or 0 for answer in answers)
    return {
        "scene": scene,
        "ttft_s": spread([ttft_s(answer) for answer in answers]),
        "ratio": spread([document.ratio(scene) for document in documents]),
        "cached_share": cached / sum(answer.prompt_tokens or 0 for answer in answers),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "lowest": min(values),
        "highest": max(values),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=5, help="how many (5)")
    parser.add_argument("--words", type=int, default=3000, help="of each, a token a word (3000)")
    parser.add_argument("--cores", default="0,1", help="one for each worker (0,1)")
    parser.add_argument("--kv-memory", default="640MiB", help="of each worker (640MiB)")
    parser.add_argument("--store-memory", default="1GiB", help="of the store (1GiB)")
    parser.add_argument("--store-disk", default="2GiB", help="of the store (2GiB)")
    parser.add_argument(
        "--store-dir", type=Path, help="where its disk tier is (a temporary folder)"
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=3.0,
        help="seconds between scenes, for what is written behind",
    )
    parser.add_argument("--quick", action="store_true", help="2 documents of 600 words; no result")
    options = parser.parse_args()
    if options.quick:
        options.documents, options.words = 2, 600
    return options


def main() -> None:
    options = arguments()
    documents = asyncio.run(measure(options, lambda line: print(line, file=sys.stderr)))
    rows = [summary(scene, documents) for scene in documents[0].answers]
    missed = [r["scene"] for r in rows if r["ratio"]["median"] > GOALS.get(r["scene"], 1.0)]
    found = {
        "documents": options.documents,
        "prompt_tokens": documents[0].answers["first"].prompt_tokens,
        "texts_equal": True,
        "goals": GOALS,
        "missed": missed,
        "scenes": rows,
    }
    print("all goals are met" if not missed else f"missed: {', '.join(missed)}", file=sys.stderr)
    if not options.quick:
        print(result.write("reuse", found))


if __name__ == "__main__":
    main()
