"""The index of who holds which blocks: how long a match takes, and what a block costs in memory.

    PYTHONPATH=src python benchmarks/index.py

64 workers and a store hold 1,000,000 different blocks. Prompts have 128k tokens, 2,048 keys of 64
tokens. Some of them are held by all workers to a random depth, some by one, some by the store on
changing tiers, some by nobody: a router sees all of these. Keys are given; hashing them is
reported apart. Times are CPU times of the thread, so that a busy machine does not blur them.
"""

import gc
import random
import time
import tracemalloc

from support import result as results

from antiphon.core.kv import BlockKeys
from antiphon.core.router import PrefixIndex
from antiphon.types import (
    STORE,
    BlockKey,
    Incarnation,
    KvChange,
    KvDump,
    KvEvents,
    Tier,
    WorkerId,
)

WORKERS, BLOCKS, KEYS, BLOCK_TOKENS = 64, 1_000_000, 2048, 64
PROMPTS, MATCHES, PART = 48, 4000, 4096
LIFE = Incarnation("life")


def some_key(draw: random.Random) -> BlockKey:
    return draw.randbytes(32)


def chains(draw: random.Random) -> list[list[BlockKey]]:
    return [[some_key(draw) for _ in range(KEYS)] for _ in range(PROMPTS)]


def contents(
    draw: random.Random, prompts: list[list[BlockKey]]
) -> dict[WorkerId, list[tuple[BlockKey, Tier]]]:
    """What each holder has: shares of the prompts, and blocks of its own up to a million."""
    held: dict[WorkerId, list[tuple[BlockKey, Tier]]] = {
        WorkerId(f"worker-{number}"): [] for number in range(WORKERS)
    }
    stored: list[tuple[BlockKey, Tier]] = []
    for number, keys in enumerate(prompts):
        match number % 4:
            case 0:  # a hot one: everybody has some of it
                for blocks in held.values():
                    depth = draw.randint(1, KEYS)
                    blocks += [(key, Tier.DEVICE) for key in keys[:depth]]
            case 1:  # one worker has all of it
                held[WorkerId(f"worker-{draw.randrange(WORKERS)}")] += [
                    (key, Tier.DEVICE) for key in keys
                ]
            case 2:  # the store has it, in runs on two tiers
                tier = Tier.HOST
                for at in range(0, KEYS, 64):
                    tier = draw.choice((Tier.HOST, Tier.DISK))
                    stored += [(key, tier) for key in keys[at : at + 64]]
            case _:  # nobody has it
                pass
    different = {key for blocks in (*held.values(), stored) for key, _ in blocks}
    for number in range(BLOCKS - len(different)):
        held[WorkerId(f"worker-{number % WORKERS}")].append((some_key(draw), Tier.DEVICE))
    return {**held, STORE: stored}


def told(index: PrefixIndex, held: dict[WorkerId, list[tuple[BlockKey, Tier]]]) -> float:
    """Tell the index by dumps; returns seconds a block."""
    begin, count = time.thread_time(), 0
    for holder, blocks in held.items():
        for start in range(0, len(blocks), PART):
            part = tuple(blocks[start : start + PART])
            count += len(part)
            ends = start + PART >= len(blocks)
            index.apply(
                holder,
                LIFE,
                KvDump(next=0, begins=start == 0, ends=ends, blocks=part),
                0.0,
            )
    return (time.thread_time() - begin) / count


def changed(index: PrefixIndex, draw: random.Random) -> float:
    """A worker's blocks come and go; returns seconds a change."""
    worker, rounds, size = WorkerId("worker-0"), 200, 64
    keys = [some_key(draw) for _ in range(size)]
    took_s = 0.0
    for number in range(rounds):
        changes = tuple(KvChange(key, Tier.DEVICE, number % 2 == 0) for key in keys)
        message = KvEvents(first=number * size, changes=changes)
        begin = time.thread_time()
        index.apply(worker, LIFE, message, 0.0)
        took_s += time.thread_time() - begin
    return took_s / (rounds * size)


def matched(index: PrefixIndex, prompts: list[list[BlockKey]]) -> list[float]:
    times: list[float] = []
    for number in range(MATCHES):
        keys = [bytes(bytearray(key)) for key in prompts[number % len(prompts)]]
        begin = time.thread_time()
        index.match(keys)
        times.append(time.thread_time() - begin)
    return sorted(times)


def hashed(draw: random.Random) -> float:
    """Seconds to name all blocks of one prompt."""
    tokens = [draw.randrange(50_000) for _ in range(KEYS * BLOCK_TOKENS)]
    maker, best = BlockKeys(identity=bytes(32), numerics="none"), float("inf")
    for _ in range(5):
        keys: list[BlockKey] = []
        begin = time.thread_time()
        maker.extend(keys, tokens, KEYS)
        best = min(best, time.thread_time() - begin)
    return best


def cleared(index: PrefixIndex) -> dict[str, float]:
    """A worker is lost: what that takes at once, and the longest of the calls that clear it."""
    worker, other = WorkerId("worker-1"), WorkerId("worker-2")
    begin = time.thread_time()
    index.left(worker)
    left_s = time.thread_time() - begin
    longest_s, blocks = 0.0, index.counts.blocks
    while True:
        begin = time.thread_time()
        index.apply(other, LIFE, KvEvents(first=0, changes=()), 0.0)
        longest_s = max(longest_s, time.thread_time() - begin)
        if index.counts.blocks == blocks:
            break
        blocks = index.counts.blocks
    return {"left_us": round(left_s * 1e6, 1), "longest_clearing_us": round(longest_s * 1e6, 1)}


def memory(held: dict[WorkerId, list[tuple[BlockKey, Tier]]]) -> dict[str, float]:
    """Bytes of the index a block, keys included: each message brings keys of its own."""
    index = PrefixIndex()
    gc.collect()
    tracemalloc.start()
    for holder, blocks in held.items():
        for start in range(0, len(blocks), PART):
            part = tuple(
                (bytes(bytearray(key)), tier) for key, tier in blocks[start : start + PART]
            )
            ends = start + PART >= len(blocks)
            message = KvDump(next=0, begins=start == 0, ends=ends, blocks=part)
            index.apply(holder, LIFE, message, 0.0)
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counts = index.counts
    return {
        "bytes_a_block": round(used / counts.blocks, 1),
        "bytes_a_block_and_holder": round(used / counts.held, 1),
    }


def main() -> None:
    draw = random.Random(5)
    prompts = chains(draw)
    held = contents(draw, prompts)
    index = PrefixIndex()
    gc.disable()
    row: dict[str, float] = {"tell_us_a_block": round(told(index, held) * 1e6, 2)}
    counts = index.counts
    row |= {"workers": WORKERS, "blocks": counts.blocks, "held": counts.held, "keys": KEYS}
    gc.collect()
    gc.freeze()
    times = matched(index, prompts)
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
        row[f"match_{name}_us"] = round(times[int(share * len(times))] * 1e6, 1)
    row["match_longest_us"] = round(times[-1] * 1e6, 1)
    row["hash_us_a_prompt"] = round(hashed(draw) * 1e6, 1)
    row["hash_us_a_key"] = round(row["hash_us_a_prompt"] / KEYS, 3)
    row["change_us"] = round(changed(index, draw) * 1e6, 2)
    row |= cleared(index)
    row |= memory(held)
    for name, value in row.items():
        print(f"{name:28}{value:>14}")
    print(f"\nwritten to {results.write('index', row)}")


if __name__ == "__main__":
    main()
