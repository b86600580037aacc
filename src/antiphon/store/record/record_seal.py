"""Records that nobody reads, and nobody makes, without the key: AES-256-GCM over a block's pages.

    chunk              nonce (12) ‖ AES-256-GCM(checksums ‖ pages) ‖ tag (16)
    associated data    the header of the record from byte 8 on: whose KV, which block, which layout

The checksums (XXH3-64 of each page, uint64) are sealed with the pages: they are those of what the
pages held when the block was made, and a page that was reassigned before it was sealed does not
have its checksum. The nonce is drawn at random for each record. With 96 bits that is good for
2^32 records under one key (NIST SP 800-38D §8.3), which is petabytes of KV.
"""

import os
import struct
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.errors import BugError

from .kv_origin import KvOrigin
from .page_checksums import Page, all_match
from .record_header import (
    CHECKSUM_BYTES,
    LIVE,
    NONCE_BYTES,
    SEAL_NAME_BYTES,
    TAG_BYTES,
    RecordHeader,
)

KEY_BYTES = 32
_PERSON = b"antiphon.key.1"


class RecordSeal:
    """Seals and opens records with one key. Thread-safe.

    `name` says which key it is and nothing of it: records of other keys are told apart by it.
    """

    def __init__(self, key: bytes) -> None:
        """`key`: 32 bytes that nobody can guess. Raises `BugError` for another length."""
        if len(key) != KEY_BYTES:
            raise BugError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self.name = blake2b(key, digest_size=SEAL_NAME_BYTES, person=_PERSON).digest()
        self._cipher = AESGCM(key)

    def origin(self, origin: KvOrigin) -> KvOrigin:
        """That of the records that this key seals, for KV of `origin`."""
        return replace(origin, sealed_by=self.name)

    def sealed(
        self, header: RecordHeader, pages: Sequence[Page], checksums: Sequence[int]
    ) -> tuple[bytes, memoryview]:
        """Header and chunk of the record of a block; `header` is one of a sealed origin's."""
        head, nonce = header.encoded(), os.urandom(NONCE_BYTES)
        plain = np.concatenate([np.frombuffer(_packed(checksums), np.uint8), *pages])
        chunk = np.empty(NONCE_BYTES + len(plain) + TAG_BYTES, np.uint8)
        chunk[:NONCE_BYTES] = np.frombuffer(nonce, np.uint8)
        self._cipher.encrypt_into(nonce, plain.data, _bound(head), chunk[NONCE_BYTES:].data)
        return head, chunk.data

    def opens(
        self,
        head: bytes | bytearray | memoryview,
        chunk: bytes | bytearray | memoryview,
        into: Sequence[Page],
    ) -> bool:
        """Fill `into` with what a record holds, of which `head` is the encoded header; False: it
        was not sealed so with this key, or its pages were not the block's any more.

        Nothing is written to `into` that the tag does not prove.
        """
        sums = len(into) * CHECKSUM_BYTES
        size = len(chunk) - NONCE_BYTES - TAG_BYTES
        if size != sums + sum(page.nbytes for page in into):
            return False
        view, plain = memoryview(chunk), np.empty(size, np.uint8)
        nonce, sealed = view[:NONCE_BYTES], view[NONCE_BYTES:]
        try:
            self._cipher.decrypt_into(nonce, sealed, _bound(head), plain.data)
        except InvalidTag:
            return False
        at = sums
        for page in into:
            page[:] = plain[at : at + page.nbytes]
            at += page.nbytes
        return all_match(into, struct.unpack(f"<{len(into)}Q", plain[:sums].data))


def record_parts(
    seal: RecordSeal | None,
    header: RecordHeader,
    pages: Sequence[Page],
    checksums: Sequence[int],
) -> Sequence[bytes | memoryview]:
    """All bytes of the raw record of a block, in order; plain ones lie where the pages are."""
    if seal is None:
        return header.encoded(), *(page.data for page in pages)
    return seal.sealed(header, pages, checksums)


def _bound(head: bytes | bytearray | memoryview) -> bytes:
    """What the tag proves beside the chunk. The magic may become that of a removed record."""
    return bytes(head[len(LIVE) :])


def _packed(checksums: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(checksums)}Q", *checksums)
