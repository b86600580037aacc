"""Which lineage the KV of a worker has, as its configuration says."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from antiphon.core.kv.lineage import ADAPTIVE, with_lineage
from antiphon.errors import UsageError
from antiphon.store.codec import peek_kv_profile
from antiphon.types import StorePoolConfig

Read = TypeVar("Read")


def numerics_with_lineage(numerics: str, pool: StorePoolConfig, identity: bytes) -> str:
    """The numerics id of a worker of the model `identity` whose KV may come at `pool.level`.

    Raises `UsageError` that names the file: a profile that is none, or another model's.
    """
    return with_lineage(numerics, pool.level, profile_id(pool, identity))


def profile_id(pool: StorePoolConfig, identity: bytes) -> bytes:
    """The id of the profile that `pool.level` decodes by; empty: it needs none."""
    by_profile = pool.level == ADAPTIVE or pool.level.startswith("entropy")
    if pool.profile is None or not by_profile:
        return b""
    name = of_setting(pool.profile, peek_kv_profile)
    check_profile_model(pool.profile, name.model, name.identity, identity)
    return name.id


def of_setting(path: str, read: Callable[[Path], Read]) -> Read:
    """What `read` finds in the profile that is configured. Raises `UsageError` that names the
    setting and the file."""
    try:
        return read(Path(path))
    except UsageError as error:
        raise UsageError(f"store_pool.profile (--kv-profile) = {error}") from None


def check_profile_model(path: str, model: str, of: bytes, identity: bytes) -> None:
    """Raises `UsageError`: the profile is not of the model `identity`."""
    if of != identity:
        raise UsageError(
            f"store_pool.profile (--kv-profile) = {path}: is of the model {model} "
            f"({of.hex()[:16]}…), the workers have {identity.hex()[:16]}…: make one of theirs with "
            f"`antiphon kv profile MODEL -o FILE`"
        )
