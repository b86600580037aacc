"""Small models run fastest on one thread; tests of threads set their own number."""

from collections.abc import Callable, Iterator

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def torch_threads() -> Iterator[Callable[[int], None]]:
    """Gives torch so many threads, until the test is over."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
