"""The lineage of a worker's KV, from the profile that its configuration names."""

from dataclasses import replace
from pathlib import Path

import pytest

from antiphon.core.kv.lineage import lineage_in, lineage_of
from antiphon.errors import UsageError
from antiphon.live.kv_lineage import numerics_with_lineage
from antiphon.store.codec import write_kv_profile
from antiphon.types import StorePoolConfig
from codec_kit import profile

IDENTITY = bytes(32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kv.profile"
    write_kv_profile(replace(profile(), identity=IDENTITY, coders={}), path)
    return path


def numerics(level: str, path: Path | None, identity: bytes = IDENTITY) -> str:
    pool = StorePoolConfig(level=level, profile=None if path is None else str(path))
    return numerics_with_lineage("n", pool, identity)


@pytest.mark.parametrize("level", ["entropy-2", "adaptive"])
def test_levels_that_may_be_profiled_are_named_after_the_profile(file: Path, level: str) -> None:
    known = replace(profile(), identity=IDENTITY, coders={}).id
    assert lineage_in(numerics(level, file)) == lineage_of(level, known)


@pytest.mark.parametrize("level", ["raw", "lossless", "int8"])
def test_others_do_not_look_at_it(tmp_path: Path, level: str) -> None:
    assert lineage_in(numerics(level, tmp_path / "none")) == lineage_of(level)


def test_a_profile_that_will_not_do_is_named_with_its_setting(file: Path, tmp_path: Path) -> None:
    setting = r"^store_pool\.profile \(--kv-profile\) = "
    with pytest.raises(UsageError, match=f"{setting}{tmp_path}: is a folder"):
        numerics("adaptive", tmp_path)
    with pytest.raises(UsageError, match=f"{setting}.*none: there is no such file"):
        numerics("entropy-1", tmp_path / "none")
    with pytest.raises(UsageError, match=f"{setting}{file}: is of the model made up"):
        numerics("entropy-1", file, bytes([1]) * 32)
