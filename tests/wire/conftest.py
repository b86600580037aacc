"""Streams are tested on both loops: the server runs on uvloop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop
from wire_kit import HandClock


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
