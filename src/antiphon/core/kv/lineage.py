"""Lineage: what sets KV that may be inexact apart from exact KV, and keeps it apart.

A deployment that may take lossy KV computes under another numerics id than one that does not:

    cpu-x86_64-…-r3  ──►  cpu-x86_64-…-r3+lossy:int4:9f2c…

Block keys digest that id, and offers, retries and joins compare it. So whatever was computed on top
of KV that may be lossy has other names, too, is taken by no exact worker, and no exact look-up
finds it: lossy KV is contagious (docs/decisions/0025-lossy-kv-has-a-lineage.md).
"""

from hashlib import blake2b

EXACT_LEVELS = ("raw", "lossless")
ADAPTIVE = "adaptive"
LINEAGE_BYTES = 16
_PERSON = b"antiphon.codec.1"
_MARK = "+lossy:"


def lineage_of(level: str, profile: bytes = b"") -> bytes:
    """What tells KV of this level, and all that is computed on top of it, from exact KV.

    `profile`: the id of the profile that the level needs. Empty for exact levels. Two levels, or
    one under two profiles, have two lineages; `adaptive` is one of its own.
    """
    if level in EXACT_LEVELS:
        return b""
    return blake2b(
        level.encode() + b"\0" + profile, digest_size=LINEAGE_BYTES, person=_PERSON
    ).digest()


def with_lineage(numerics: str, level: str, profile: bytes = b"") -> str:
    """The numerics id of a deployment whose KV may come at `level`."""
    lineage = lineage_of(level, profile)
    return f"{numerics}{_MARK}{level}:{lineage.hex()}" if lineage else numerics


def lineage_in(numerics: str) -> bytes:
    """The lineage that a numerics id names; empty: of exact KV. What is spelled otherwise names
    none: then nothing lossy is given for it."""
    _, mark, said = numerics.rpartition(_MARK)
    if not mark:
        return b""
    try:
        lineage = bytes.fromhex(said.rpartition(":")[2])
    except ValueError:
        return b""
    return lineage if len(lineage) == LINEAGE_BYTES else b""
