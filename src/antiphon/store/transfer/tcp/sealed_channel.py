"""Bytes over a connection in encrypted records.

    record: uint32 length ‖ AES-256-GCM(plain bytes) with its tag; the nonce is the record's number

A record that does not prove itself ends the connection.
"""

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from antiphon.errors import PeerError

from .vectored_io import Areas, Patience, areas_in, receive_all, send_all, through_buffer

RECORD_BYTES = 256 << 10
"""Plain bytes of one record at most: what is gathered, encrypted and sent stays in the cache."""
_TAG_BYTES = 16
_LENGTH_BYTES = 4


class SealedChannel:
    """For one thread. `sends`, `hears`: the keys of the two directions, 32 bytes."""

    def __init__(self, fd: int, sends: bytes, hears: bytes) -> None:
        self._fd = fd
        self._seal, self._open = AESGCM(sends), AESGCM(hears)
        self._sent, self._heard = 0, 0
        self._gathered = np.zeros(RECORD_BYTES, np.uint8)
        self._record = np.zeros(_LENGTH_BYTES + RECORD_BYTES + _TAG_BYTES, np.uint8)
        self._plain = np.zeros(RECORD_BYTES, np.uint8)
        self._left = self._plain[:0]

    def send(self, areas: Areas, patience: Patience) -> None:
        """All areas, in order; consumes them. Raises `PeerError`."""
        while len(areas):
            whole, size = through_buffer(areas, self._gathered, False)
            areas = areas[whole:]
            record = self._record[: _LENGTH_BYTES + size + _TAG_BYTES]
            record[:_LENGTH_BYTES] = np.frombuffer(_length(size + _TAG_BYTES), np.uint8)
            length, sealed = record[:_LENGTH_BYTES].tobytes(), record[_LENGTH_BYTES:]
            plain = self._gathered[:size].data
            self._seal.encrypt_into(_nonce(self._sent), plain, length, sealed.data)
            self._sent += 1
            send_all(self._fd, areas_in(record), patience)

    def receive(self, areas: Areas, patience: Patience, *, patient: bool = False) -> None:
        """Fill all areas; `patient`: the first byte may be long in coming. Raises `PeerError`."""
        while len(areas):
            if not len(self._left):
                self._left = self._opened(patience, patient)
                patient = False
            whole, size = through_buffer(areas, self._left, True)
            areas, self._left = areas[whole:], self._left[size:]

    def _opened(self, patience: Patience, patient: bool) -> np.ndarray:
        """The plain bytes of the next record; until the next one is opened."""
        length = np.empty(_LENGTH_BYTES, np.uint8)
        receive_all(self._fd, areas_in(length), patience, patient=patient)
        size = int.from_bytes(length.tobytes(), "little")
        if not _TAG_BYTES < size <= RECORD_BYTES + _TAG_BYTES:
            raise PeerError(f"a record of {size} bytes")
        sealed, plain = self._record[:size], self._plain[: size - _TAG_BYTES]
        receive_all(self._fd, areas_in(sealed), patience)
        nonce = _nonce(self._heard)
        self._heard += 1
        try:
            self._open.decrypt_into(nonce, sealed.data, length.tobytes(), plain.data)
        except InvalidTag:
            raise PeerError("a record does not prove itself: it was changed") from None
        return plain


def _length(size: int) -> bytes:
    return size.to_bytes(_LENGTH_BYTES, "little")


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
