"""What KV costs to keep, and what keeping it saves: the arithmetic of `antiphon kv cost`.

    bytes a day      = tokens/s · busy · 86,400 · bytes/token
    worth of a token = device price / tokens of prefill that the device does in that time
    break-even       = the share of prompt tokens that must come from storage, so that the prefill
                       they save is worth what the storage costs

All is linear in its inputs, and nothing is rounded here.
"""

from dataclasses import dataclass

SECONDS_PER_HOUR = 3600
SECONDS_PER_DAY = 86_400
HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True, kw_only=True)
class KvModel:
    """What a model keeps of each token. `values`: numbers per layer; `why`: how they come about.

    `tokens_per_s`: a first guess of what one device of a data centre computes of its prompts.
    """

    name: str
    layers: int
    values: int
    why: str
    source: str
    tokens_per_s: float

    def bytes_per_token(self, value_bytes: float) -> float:
        """Bytes of a token's KV if a number takes `value_bytes`."""
        return self.layers * self.values * value_bytes


SMALL_TOKENS_PER_S = 30_000.0
LARGE_TOKENS_PER_S = 2_500.0
"""Tensormesh's cost calculator takes these for models of 8B to 30B, and from 70B on."""
_LARGE_PARAMETERS = 50e9


def first_guess_tokens_per_s(parameters: float) -> float:
    """What a device of a data centre computes of the prompts of a model with so many parameters."""
    return LARGE_TOKENS_PER_S if parameters >= _LARGE_PARAMETERS else SMALL_TOKENS_PER_S


def grouped(
    name: str,
    *,
    layers: int,
    kv_heads: int,
    head_dim: int,
    source: str,
    tokens_per_s: float = SMALL_TOKENS_PER_S,
) -> KvModel:
    """A model with grouped-query attention: a key and a value for each of its KV heads."""
    return KvModel(
        name=name,
        layers=layers,
        values=2 * kv_heads * head_dim,
        why=f"a key and a value of {head_dim} for each of {kv_heads} KV heads",
        source=source,
        tokens_per_s=tokens_per_s,
    )


def latent(
    name: str,
    *,
    layers: int,
    rank: int,
    rope_dim: int,
    source: str,
    tokens_per_s: float = SMALL_TOKENS_PER_S,
) -> KvModel:
    """A model with multi-head latent attention: one vector for all heads, and a key with RoPE."""
    return KvModel(
        name=name,
        layers=layers,
        values=rank + rope_dim,
        why=f"one latent vector of {rank} and a RoPE key of {rope_dim}",
        source=source,
        tokens_per_s=tokens_per_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What computes KV: `devices` alike, each `tokens_per_s` while busy, which it is so often."""

    devices: int
    tokens_per_s: float
    busy_share: float
    device_price_per_hour: float

    @property
    def tokens_per_hour(self) -> float:
        """Tokens whose KV all devices compute in an hour."""
        return self.devices * self.tokens_per_s * self.busy_share * SECONDS_PER_HOUR

    @property
    def price_per_hour(self) -> float:
        """Of all devices, busy or not."""
        return self.devices * self.device_price_per_hour

    @property
    def price_per_token(self) -> float:
        """What a token of prefill costs on a device that has nothing else to do.

        It does not depend on `busy_share`: a token that is not computed makes room for another.
        """
        return self.device_price_per_hour / (self.tokens_per_s * SECONDS_PER_HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Where KV is kept. Gigabytes are 10^9 bytes, as they are sold."""

    name: str
    capacity_bytes: float
    price_per_gb_month: float

    @property
    def price_per_hour(self) -> float:
        """Of all of it."""
        return self.capacity_bytes / 1e9 * self.price_per_gb_month / HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCase:
    """Whether it pays to keep KV there. Money is per hour."""

    storage: Storage
    price_per_hour: float
    break_even_hit_rate: float
    """Share of tokens that must be found again; above 1: it can never pay."""
    holds_s: float
    """How long a block stays if everything is stored and the oldest goes first."""
    saved_per_hour: float
    """At the hit rate that was asked for, minus what the storage costs."""


def kv_bytes_per_day(traffic: Traffic, stored_bytes_per_token: float) -> float:
    """What all devices write in a day if all KV is stored."""
    return bytes_for(traffic, stored_bytes_per_token, SECONDS_PER_DAY)


def bytes_for(traffic: Traffic, stored_bytes_per_token: float, keep_s: float) -> float:
    """The capacity in which every block stays that long."""
    return traffic.tokens_per_hour * stored_bytes_per_token * keep_s / SECONDS_PER_HOUR


def useful_bytes_per_s(traffic: Traffic, stored_bytes_per_token: float) -> float:
    """The rate from which on one device gets KV sooner from storage than by computing it."""
    return traffic.tokens_per_s * stored_bytes_per_token


def storage_case(
    traffic: Traffic, storage: Storage, *, stored_bytes_per_token: float, hit_rate: float
) -> StorageCase:
    """What `storage` costs, what it must yield, and what it does yield at `hit_rate`."""
    worth_of_all = traffic.tokens_per_hour * traffic.price_per_token
    return StorageCase(
        storage=storage,
        price_per_hour=storage.price_per_hour,
        break_even_hit_rate=storage.price_per_hour / worth_of_all,
        holds_s=storage.capacity_bytes
        / (traffic.tokens_per_hour * stored_bytes_per_token)
        * SECONDS_PER_HOUR,
        saved_per_hour=hit_rate * worth_of_all - storage.price_per_hour,
    )
