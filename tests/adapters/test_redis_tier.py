"""The remote tier over a real Redis, which is killed, stopped, filled and lied about."""

import random
import signal
import sys
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pytest
import xxhash
from redis_kit import LONGEST_S, RealRedis, answering, needs_redis

from antiphon.adapters.redis_tier import RedisValues, RemoteLogin
from antiphon.errors import ConfigError, UsageError
from antiphon.store.record import KvOrigin, RecordedBlock, new_pages
from antiphon.store.remote import RemoteTier

ORIGIN = KvOrigin(
    identity=b"model", layout="test", page_tokens=16, block_tokens=64, page_bytes=368_640
)


class HandClock:
    """Stands still, so that deadlines are those of the calls and pauses end when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealRedis]:
    started = RealRedis(tmp_path)
    yield started
    started.kill()


def remote(
    url: str,
    clock: HandClock | None = None,
    login: RemoteLogin | None = None,
    patience_s: float = 0.2,
    **options: object,
) -> RemoteTier:
    values = RedisValues(url, login, timeout_s=patience_s)
    timeout_s = 10 * patience_s
    return RemoteTier(values, ORIGIN, timeout_s=timeout_s, clock=clock or HandClock(), **options)


def key_of(number: int) -> bytes:
    return blake2b(str(number).encode(), digest_size=32).digest()


def pages_of(number: int) -> list:
    pages = new_pages(ORIGIN)
    for page in pages:
        page[:] = np.random.default_rng(number).integers(0, 256, page.shape, np.uint8)
    return pages


def put(tier: RemoteTier, *numbers: int) -> tuple[bool, ...]:
    blocks = []
    for number in numbers:
        pages = pages_of(number)
        sums = [xxhash.xxh3_64_intdigest(page) for page in pages]
        blocks.append((RecordedBlock(key=key_of(number), parent=None), pages, sums))
    return tier.put(blocks)


def got(tier: RemoteTier, *numbers: int) -> list[int]:
    """What can be read, which must be right, and before anybody would call it hanging."""
    into = [new_pages(ORIGIN) for _ in numbers]
    started = time.monotonic()
    good = tier.get([key_of(n) for n in numbers], into)
    assert time.monotonic() - started < LONGEST_S
    for number, pages, is_good in zip(numbers, into, good, strict=True):
        assert not is_good or all(map(np.array_equal, pages, pages_of(number)))
    return [number for number, is_good in zip(numbers, good, strict=True) if is_good]


def dropped(tier: RemoteTier) -> dict[str, int]:
    return dict(tier.stats().dropped)


# ── a server that is well ────────────────────────────────────────────────────────────────────────


@needs_redis
def test_what_one_store_puts_another_gets(server: RealRedis) -> None:
    one, other = remote(server.url), remote(server.url)
    assert put(one, 0, 1, 3) == (True, True, True)
    assert other.present([key_of(n) for n in range(5)]) == 2
    assert got(other, *range(5)) == [0, 1, 3]
    assert dropped(other) == {}


@needs_redis
def test_all_is_cleared_and_what_others_keep_there_stays(server: RealRedis) -> None:
    tier = remote(server.url, patience_s=5.0)
    assert all(put(tier, *range(1200)))
    server.client().set(b"of somebody else", b"value")
    assert len(RedisValues(server.url).names(b"[of] *", 0)[1]) == 0
    gone, all_asked = tier.clear(None)
    assert (len(gone), all_asked) == (1200, True)
    assert server.client().keys("*") == [b"of somebody else"]


@needs_redis
def test_values_go_after_their_time_to_live(server: RealRedis) -> None:
    values = RedisValues(server.url, ttl_s=100)
    put(RemoteTier(values, ORIGIN), 0)
    (name,) = server.client().keys()
    assert 90_000 < server.client().pttl(name) <= 100_000
    put(remote(server.url), 0)
    assert server.client().pttl(name) == -1


@needs_redis
def test_a_value_that_somebody_changed_is_a_miss(server: RealRedis) -> None:
    """LMCache 1690: the remote said that a key was there, and something else was."""
    tier = remote(server.url)
    put(tier, 0, 1)
    first, second = b"antiphon:kv:1:" + key_of(0), b"antiphon:kv:1:" + key_of(1)
    server.client().setrange(first, 1_000_000, b"damage")
    server.client().rename(second, b"antiphon:kv:1:" + key_of(2))
    assert got(tier, 0, 1, 2) == []
    assert dropped(tier) == {"read_damaged": 2}


@needs_redis
def test_a_value_of_gigabytes_comes_over_the_network_cut_short(server: RealRedis) -> None:
    tier = remote(server.url)
    server.client().setrange(b"antiphon:kv:1:" + key_of(0), 64 << 20, b"end")
    assert got(tier, 0) == []
    values = RedisValues(server.url)
    (value,) = values.get([b"antiphon:kv:1:" + key_of(0)], 1000)
    assert value == bytes(1000)


@needs_redis
def test_a_key_of_another_type_is_a_failure_and_a_miss(server: RealRedis) -> None:
    server.client().lpush(b"antiphon:kv:1:" + key_of(0), b"list")
    tier = remote(server.url)
    assert got(tier, 0) == []
    assert dropped(tier) == {"failed_ResponseError": 1}


# ── a server that is not ─────────────────────────────────────────────────────────────────────────


@needs_redis
def test_killed_it_misses_and_started_again_it_is_used_again(server: RealRedis) -> None:
    """LMCache 1810, Mooncake 935: killing the remote store garbled answers."""
    clock = HandClock()
    tier = remote(server.url, clock)
    put(tier, 0)
    server.kill()
    for _ in range(5):
        assert got(tier, 0) == []
    assert put(tier, 1) == (False,)
    assert tier.present([key_of(0)]) == 0
    assert dropped(tier)["breaker_opened"] == 1
    server.start()
    clock.now = 1.0
    assert got(tier, 0) == []  # it has lost everything, and says so
    assert put(tier, 0) == (True,)
    assert got(tier, 0) == [0]


@needs_redis
def test_stopped_it_misses_and_its_late_answers_are_nobodys(server: RealRedis) -> None:
    """Mooncake 1088: calls stalled for a minute. LMCache 2363: a stopped server came back."""
    clock = HandClock()
    tier = remote(server.url, clock)
    put(tier, 0, 1, 2)
    server.send(signal.SIGSTOP)
    for number in range(3):
        assert got(tier, number) == []
    assert put(tier, 3) == (False,)
    server.send(signal.SIGCONT)
    clock.now = 60.0
    assert got(tier, 2) == [2]
    assert got(tier, 0, 1) == [0, 1]


@needs_redis
def test_full_it_takes_nothing_and_gives_what_it_has(server: RealRedis) -> None:
    """Mooncake 3139: puts failed while full. Reading must not suffer from it."""
    tier = remote(server.url)
    assert put(tier, 0) == (True,)
    server.client().config_set("maxmemory", server.client().info("memory")["used_memory"])
    for number in range(1, 6):
        assert put(tier, number) == (False,)
    assert got(tier, 0, 1) == [0]
    assert dropped(tier) == {"put_not_taken": 5}
    server.client().config_set("maxmemory", 16 << 20)
    server.client().config_set("maxmemory-policy", "allkeys-lru")
    for number in range(1, 20):
        assert put(tier, number) == (True,)
    assert 1 <= len(got(tier, *range(20))) <= 10


@needs_redis
def test_a_wrong_password_is_a_miss(tmp_path: Path) -> None:
    server = RealRedis(tmp_path, password="secret")
    try:
        assert got(remote(server.url, login=RemoteLogin("wrong")), 0) == []
        tier = remote(server.url, login=RemoteLogin("secret"))
        assert put(tier, 0) == (True,)
        assert got(tier, 0) == [0]
        server.client().execute_command("ACL SETUSER kv on >mine ~* +@all")
        assert got(remote(server.url, login=RemoteLogin("mine", "kv")), 0) == [0]
        assert got(remote(server.url, login=RemoteLogin("secret", "kv")), 0) == []
    finally:
        server.kill()


GARBAGE = {
    "nothing": b"",
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "noise": random.Random(1).randbytes(4096),
    "no number": b"$banana\r\n",
    "negative": b"$-77\r\n\r\n",
    "huge": b"$9999999999999\r\nabc",
    "endless list": b"*2147483647\r\n",
    "deep": b"*1\r\n" * 100_000,
    "wrong type": b":1\r\n" * 8,
    "one answer": b"$3\r\nabc\r\n",
    "error": b"-OOM no memory\r\n" * 8,
    "unknown": b"?what\r\n" * 8,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_for_an_answer_is_a_miss(tmp_path: Path, name: str) -> None:
    """LMCache 2757: what a store sends was trusted."""
    with answering(tmp_path, GARBAGE[name]) as url:
        tier = remote(url)
        assert got(tier, 0, 1) == []
        assert put(tier, 0) == (False,)
        tier.present([key_of(0), key_of(1)])
        tier.close()


def test_an_answer_that_comes_a_byte_at_a_time_is_not_waited_for(tmp_path: Path) -> None:
    """Each byte comes within the socket's timeout: only the deadline of the whole ends it."""
    with answering(tmp_path, b"$1500000\r\n" + bytes(100_000), dribble=True) as url:
        tier = RemoteTier(RedisValues(url, timeout_s=5.0), ORIGIN, timeout_s=0.3)
        assert got(tier, 0) == []
        assert dropped(tier) == {"failed_late": 1}
        tier.close()


def test_nobody_there_is_a_miss(tmp_path: Path) -> None:
    tier = remote(f"unix://{tmp_path}/nobody.sock")
    assert got(tier, 0) == []
    assert dropped(tier) == {"failed_ConnectionError": 1}


# ── settings ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://host:1/0", "must begin with redis://, rediss://, unix://"),
        ("host:6379", "must begin with"),
        ("redis://host:banana/0", "is no URL"),
        ("redis://:hunter2@host:1/0", "store.remote_password_file"),
        ("redis:///0", "names no host"),
        ("redis://host:1/0?socket_timeout=900", "option 'socket_timeout'"),
        ("redis://host:1/banana", "/banana"),
    ],
)
def test_a_url_that_can_not_be_used_is_one_clear_error(url: str, problem: str) -> None:
    with pytest.raises(UsageError, match=r"store\.remote") as raised:
        RedisValues(url)
    assert problem in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(UsageError, match=r"pip install 'antiphon\[redis\]'"):
        RedisValues("redis://localhost")


# ── the password ─────────────────────────────────────────────────────────────────────────────────


def test_a_login_is_read_from_a_file_and_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("hunter2 is long\n")
    assert RemoteLogin.from_file(file) == RemoteLogin("hunter2 is long")
    assert caplog.text == ""
    file.write_text("me\nhunter2")
    login = RemoteLogin.from_file(file)
    assert login == RemoteLogin("hunter2", "me")
    assert "hunter2" not in repr(login)
    file.chmod(0o644)
    RemoteLogin.from_file(file)
    assert "chmod 600" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("content", [b"", b"\n", b"a\n\n", b"\nhunter2", b"1\n2\n3", b"\xff"])
def test_a_file_that_holds_no_login_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "password"
    with pytest.raises(ConfigError, match=r"store\.remote_password_file .*can't be read"):
        RemoteLogin.from_file(file)
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"store\.remote_password_file") as raised:
        RemoteLogin.from_file(file)
    assert "hunter2" not in str(raised.value)
