"""Long text never holds up the event loop, whatever the tokenizer does meanwhile."""

import asyncio
import threading

from antiphon.live.gateway.prompts import LONG_TEXT_CHARS, Prompts


class HeldTokenizer:
    """Like the real one it serves one caller at a time; it waits for `free` with long text."""

    add_bos = False

    def __init__(self) -> None:
        self.free = threading.Event()
        self.threads: list[threading.Thread] = []
        self._one_at_a_time = threading.Lock()

    def encode(self, text: str, *, add_bos: bool) -> tuple[int, ...]:
        self.threads.append(threading.current_thread())
        with self._one_at_a_time:
            if len(text) >= LONG_TEXT_CHARS:
                assert self.free.wait(10)
            return (len(text),)

    def token_bytes(self, token: int) -> bytes:
        raise NotImplementedError

    def token_text(self, token: int) -> str:
        raise NotImplementedError


async def test_short_text_is_done_at_once():
    held = HeldTokenizer()
    prompts = Prompts(held, None)  # type: ignore[arg-type]
    assert await prompts.texts(["ab", "c"]) == [(2,), (1,)]
    assert set(held.threads) == {threading.current_thread()}


async def test_the_loop_goes_on_while_long_and_then_short_text_waits():
    held = HeldTokenizer()
    prompts = Prompts(held, None)  # type: ignore[arg-type]
    long = asyncio.create_task(prompts.texts(["x" * LONG_TEXT_CHARS]))
    while not held.threads:
        await asyncio.sleep(0)
    short = asyncio.create_task(prompts.texts(["x"]))
    while len(held.threads) < 2:
        await asyncio.sleep(0)
    assert not long.done()
    assert not short.done()
    assert threading.current_thread() not in held.threads
    held.free.set()
    assert await long == [(LONG_TEXT_CHARS,)]
    assert await short == [(1,)]
    assert await prompts.texts(["abc"]) == [(3,)]
    assert held.threads[-1] is threading.current_thread(), "and afterwards all is as before"


async def test_many_short_texts_together_are_long():
    held = HeldTokenizer()
    prompts = Prompts(held, None)  # type: ignore[arg-type]
    await prompts.texts(["x" * 100] * (LONG_TEXT_CHARS // 100 + 1))
    assert threading.current_thread() not in held.threads
