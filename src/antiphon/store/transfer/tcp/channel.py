"""Bytes over a connection whose handshake is done: as they are, or encrypted in records.

    record: uint32 length ‖ AES-256-GCM(plain bytes) with its tag; the nonce is the record's number

A record that does not prove itself ends the connection.
"""

import ctypes
import socket
import struct
from typing import Protocol

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.errors import PeerError

from .handshake import Session
from .vectored_io import Idle, Vectors, receive_all, send_all, vectors_of

RECORD_BYTES = 256 << 10
"""Plain bytes of one record at most."""
_TAG_BYTES = 16
_LENGTH = struct.Struct("<I")


class Channel(Protocol):
    """One thread sends and receives; areas are consumed."""

    def send(self, vectors: Vectors, idle: Idle, *, more: bool = False) -> None:
        """Raises `PeerError`, and what `idle` raises."""
        ...

    def receive(self, vectors: Vectors, idle: Idle) -> None:
        """Fill all areas. Raises likewise."""
        ...


def channel_of(connection: socket.socket, session: Session) -> Channel:
    """What the session agreed on."""
    if session.sends is None or session.hears is None:
        return PlainChannel(connection)
    return SealedChannel(connection, session.sends, session.hears)


class PlainChannel:
    """Straight between memory and the socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._fd = connection.fileno()

    def send(self, vectors: Vectors, idle: Idle, *, more: bool = False) -> None:
        """See `Channel`."""
        send_all(self._fd, vectors, idle, more=more)

    def receive(self, vectors: Vectors, idle: Idle) -> None:
        """See `Channel`."""
        receive_all(self._fd, vectors, idle)


class SealedChannel:
    """Through records: two copies more, and a cipher."""

    def __init__(self, connection: socket.socket, sends: bytes, hears: bytes) -> None:
        self._fd = connection.fileno()
        self._seal, self._open = AESGCM(sends), AESGCM(hears)
        self._sent, self._heard = 0, 0
        self._plain = memoryview(b"")

    def send(self, vectors: Vectors, idle: Idle, *, more: bool = False) -> None:
        """See `Channel`."""
        plain = b"".join(ctypes.string_at(at, size) for at, size in vectors.tolist())
        for start in range(0, len(plain), RECORD_BYTES):
            record = plain[start : start + RECORD_BYTES]
            length = _LENGTH.pack(len(record) + _TAG_BYTES)
            sealed = self._seal.encrypt(_nonce(self._sent), record, length)
            self._sent += 1
            message = np.frombuffer(length + sealed, np.uint8)
            send_all(self._fd, vectors_of(message), idle, more=more)

    def receive(self, vectors: Vectors, idle: Idle) -> None:
        """See `Channel`."""
        for at, size in vectors.tolist():
            done = 0
            while done < size:
                if not self._plain:
                    self._plain = memoryview(self._record(idle))
                some = self._plain[: size - done]
                ctypes.memmove(at + done, bytes(some), len(some))
                self._plain = self._plain[len(some) :]
                done += len(some)

    def _record(self, idle: Idle) -> bytes:
        length = np.empty(_LENGTH.size, np.uint8)
        receive_all(self._fd, vectors_of(length), idle)
        (size,) = _LENGTH.unpack(length)
        if not _TAG_BYTES < size <= RECORD_BYTES + _TAG_BYTES:
            raise PeerError(f"a record of {size} bytes")
        sealed = np.empty(size, np.uint8)
        receive_all(self._fd, vectors_of(sealed), idle)
        nonce = _nonce(self._heard)
        self._heard += 1
        try:
            return self._open.decrypt(nonce, sealed.tobytes(), length.tobytes())
        except InvalidTag:
            raise PeerError("a record does not prove itself: it was changed") from None


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
