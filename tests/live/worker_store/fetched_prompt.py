"""A prompt that a store has, and what may be wrong with it there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from link_kit import until
from scripted_store import ScriptedStore
from store_worker import BLOCK, prompt, request, store_worker

from antiphon.types import Located

BLOCKS = 5
PROMPT = prompt(BLOCKS)
KNOWN = BLOCKS * BLOCK


async def filled(folder: Path, store: ScriptedStore, *prompts: tuple[int, ...]) -> None:
    """Another worker has computed these, and is gone."""
    async with store_worker(folder, "earlier") as side:
        await until(lambda: side.connected)
        before = len(store.kept)
        for number, tokens in enumerate(prompts or (PROMPT,)):
            await side.ask(request(f"e{number}", tokens))
        blocks = sum(len(tokens) // BLOCK for tokens in prompts or (PROMPT,))
        await until(lambda: len(store.kept) >= before + blocks)
        assert side.worker.view().put_blocks_total == len(store.kept) - before
        await side.rest()


def damaged(store: ScriptedStore, number: int) -> Callable[[Located], Located]:
    """One byte of one block is another than it was."""

    def damage(located: Located) -> Located:
        page = located.blocks[number][1].page
        store.region.content.reshape(store.shape.pages, -1)[page][100] ^= 1
        return located

    return damage


def reassigned(store: ScriptedStore, number: int) -> Callable[[Located], Located]:
    """Its slot is being filled with something else."""

    def reassign(located: Located) -> Located:
        store.region.begin_write([located.blocks[number][3].page])
        return located

    return reassign


def swapped_out(located: Located) -> Located:
    return replace(located, blocks=(*located.blocks, *located.blocks))
