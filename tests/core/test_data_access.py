"""What a peer says opens its pages is looked at before anything is made of it."""

from dataclasses import replace

import pytest

from antiphon.core.data_access import MOST_METADATA_BYTES, wrong_in_access
from antiphon.types import DataAccess, RemoteMemory

MEMORY = RemoteMemory(metadata=b"m", generations_at=4096, pages_at=2**47, pages=8)
ACCESS = DataAccess(endpoints=("tcp://10.0.0.1:9",), key_id=bytes(16), key=bytes(32), memory=MEMORY)


def test_what_can_be_is_fine() -> None:
    assert not wrong_in_access(ACCESS)
    assert not wrong_in_access(replace(ACCESS, memory=None, sealed=True))


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (replace(MEMORY, metadata=b""), "0 bytes of NIXL metadata"),
        (replace(MEMORY, metadata=bytes(MOST_METADATA_BYTES + 1)), "bytes of NIXL metadata"),
        (replace(MEMORY, generations_at=0), "generations_at is 0"),
        (replace(MEMORY, pages_at=2**64), "pages_at is"),
        (replace(MEMORY, pages=-1), "pages is -1"),
    ],
)
def test_memory_that_can_not_be_is_named(memory: RemoteMemory, says: str) -> None:
    assert says in wrong_in_access(replace(ACCESS, memory=memory))


def test_who_must_encrypt_offers_nothing_by_nixl() -> None:
    assert "must be encrypted" in wrong_in_access(replace(ACCESS, sealed=True))
