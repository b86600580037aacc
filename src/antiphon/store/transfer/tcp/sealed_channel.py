"""Bytes over a connection in encrypted records.

    record: uint32 length ‖ AES-256-GCM(plain bytes) with its tag; the nonce is the record's number

A record that does not prove itself ends the connection.
"""

import ctypes
import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.errors import PeerError

from .vectored_io import Areas, Patience, areas_in, receive_all, send_all

RECORD_BYTES = 256 << 10
"""Plain bytes of one record at most."""
_TAG_BYTES = 16
_LENGTH = struct.Struct("<I")


class SealedChannel:
    """For one thread. `sends`, `hears`: the keys of the two directions, 32 bytes."""

    def __init__(self, fd: int, sends: bytes, hears: bytes) -> None:
        self._fd = fd
        self._seal, self._open = AESGCM(sends), AESGCM(hears)
        self._sent, self._heard = 0, 0
        self._plain = memoryview(b"")

    def send(self, areas: Areas, patience: Patience) -> None:
        """All areas, in order. Raises `PeerError`."""
        plain = b"".join(ctypes.string_at(at, size) for at, size in areas.tolist())
        for start in range(0, len(plain), RECORD_BYTES):
            record = plain[start : start + RECORD_BYTES]
            length = _LENGTH.pack(len(record) + _TAG_BYTES)
            sealed = self._seal.encrypt(_nonce(self._sent), record, length)
            self._sent += 1
            message = np.frombuffer(length + sealed, np.uint8)
            send_all(self._fd, areas_in(message), patience)

    def receive(self, areas: Areas, patience: Patience, *, patient: bool = False) -> None:
        """Fill all areas; `patient`: the first byte may be long in coming. Raises `PeerError`."""
        for at, size in areas.tolist():
            done = 0
            while done < size:
                if not self._plain:
                    self._plain = memoryview(self._record(patience, patient and not done))
                some = self._plain[: size - done]
                ctypes.memmove(at + done, bytes(some), len(some))
                self._plain = self._plain[len(some) :]
                done += len(some)

    def _record(self, patience: Patience, patient: bool) -> bytes:
        length = np.empty(_LENGTH.size, np.uint8)
        receive_all(self._fd, areas_in(length), patience, patient=patient)
        (size,) = _LENGTH.unpack(length.tobytes())
        if not _TAG_BYTES < size <= RECORD_BYTES + _TAG_BYTES:
            raise PeerError(f"a record of {size} bytes")
        sealed = np.empty(size, np.uint8)
        receive_all(self._fd, areas_in(sealed), patience)
        nonce = _nonce(self._heard)
        self._heard += 1
        try:
            return self._open.decrypt(nonce, sealed.tobytes(), length.tobytes())
        except InvalidTag:
            raise PeerError("a record does not prove itself: it was changed") from None


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
