"""Both sides of a data socket prove that they know the key, before anything else is said.

    owner ──► Challenge   magic, version, 32 random bytes
    taker ──► Answer      key id, options, 32 random bytes, HMAC(key, "taker" ‖ all of both)
    owner ──► Welcome     the shape of its pages, HMAC(key, "owner" ‖ all of that ‖ the shape)

HMAC-SHA256 (RFC 2104), compared in constant time. Each proof holds both sides' random bytes, so
none can be used again, and a name of its side, so none can be sent back to whom it came from.
Options are part of what is proven: nobody in between takes encryption away. An owner says nothing
to a wrong proof, nor whether the key id exists. Keys of the two directions of an encrypted stream
come from the same values (HKDF's expansion, RFC 5869).
"""

import hashlib
import hmac
import secrets
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from antiphon.errors import PeerError
from antiphon.store.transfer.region_header import RegionHeader
from antiphon.types import Seconds

from .data_keys import KEY_BYTES, KEY_ID_BYTES

VERSION = 1
NONCE_BYTES = 32
_MAGIC = b"antiphDS"
_SEALED = 1
_CHALLENGE = struct.Struct(f"<8sH{NONCE_BYTES}s")
_ANSWER = struct.Struct(f"<{KEY_ID_BYTES}sH{NONCE_BYTES}s")
_SHAPE = struct.Struct("<QQ16s")
_PROOF_BYTES = 32

KeyOf = Callable[[bytes], bytes | None]


class RefusedError(PeerError):
    """The other side does not know the key, or is no server of pages."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What both sides must agree on: bytes of a page, and a digest of its layout's name."""

    page_bytes: int
    pages: int
    layout: bytes

    @classmethod
    def of(cls, header: RegionHeader) -> "Shape":
        """Of a region."""
        named = f"{header.layout}\0{header.page_tokens}".encode()
        return cls(header.page_bytes, header.pages, hashlib.sha256(named).digest()[:16])

    def same_pages(self, other: "Shape") -> bool:
        """Whether one can read the other's pages."""
        return (self.page_bytes, self.layout) == (other.page_bytes, other.layout)


@dataclass(frozen=True, slots=True)
class Session:
    """What a handshake agreed on. `sends`, `hears`: AES keys of this side; None: not encrypted."""

    key_id: bytes
    shape: Shape
    sends: bytes | None
    hears: bytes | None


def greet(
    connection: socket.socket, key_of: KeyOf, shape: Shape, timeout_s: Seconds, *, must_seal: bool
) -> Session:
    """The owner's side, on a blocking socket. `timeout_s` is for all of it.

    Raises `PeerError`: wrong proof, late, gone. `must_seal`: who wants no encryption is refused.
    """
    deadline = time.monotonic() + timeout_s
    challenge = _CHALLENGE.pack(_MAGIC, VERSION, secrets.token_bytes(NONCE_BYTES))
    _send(connection, challenge, deadline)
    answer = _receive(connection, _ANSWER.size, deadline)
    proof = _receive(connection, _PROOF_BYTES, deadline)
    key_id, options, _ = _ANSWER.unpack(answer)
    known = key_of(key_id)
    said = challenge + answer
    right = hmac.compare_digest(proof, _proof(known or bytes(KEY_BYTES), b"taker", said))
    if known is None or not right:
        raise RefusedError("the taker does not know the key")
    sealed = bool(options & _SEALED)
    if must_seal and not sealed:
        raise RefusedError("the taker wants no encryption")
    packed = _SHAPE.pack(shape.page_bytes, shape.pages, shape.layout)
    _send(connection, packed + _proof(known, b"owner", said + packed), deadline)
    taker, owner = _stream_keys(known, said, sealed)
    return Session(key_id, shape, sends=owner, hears=taker)


def introduce(
    connection: socket.socket, key_id: bytes, key: bytes, timeout_s: Seconds, *, sealed: bool
) -> Session:
    """The taker's side. Raises `RefusedError`, or `PeerError` if it is late or gone."""
    deadline = time.monotonic() + timeout_s
    challenge = _receive(connection, _CHALLENGE.size, deadline)
    magic, version, _ = _CHALLENGE.unpack(challenge)
    if magic != _MAGIC:
        raise RefusedError("this is no server of pages")
    if version != VERSION:
        raise RefusedError(f"the server speaks version {version} of data sockets, we {VERSION}")
    answer = _ANSWER.pack(key_id, _SEALED * sealed, secrets.token_bytes(NONCE_BYTES))
    said = challenge + answer
    _send(connection, answer + _proof(key, b"taker", said), deadline)
    try:
        packed = _receive(connection, _SHAPE.size, deadline)
        proof = _receive(connection, _PROOF_BYTES, deadline)
    except GoneError:
        raise RefusedError("the server does not take the key") from None
    if not hmac.compare_digest(proof, _proof(key, b"owner", said + packed)):
        raise RefusedError("the server does not know the key")
    taker, owner = _stream_keys(key, said, sealed)
    return Session(key_id, Shape(*_SHAPE.unpack(packed)), sends=taker, hears=owner)


class GoneError(PeerError):
    """The connection ended."""


def _proof(key: bytes, side: bytes, said: bytes) -> bytes:
    return hmac.digest(key, side + said, "sha256")


def _stream_keys(key: bytes, said: bytes, sealed: bool) -> tuple[bytes | None, bytes | None]:
    if not sealed:
        return None, None
    return _proof(key, b"from taker", said), _proof(key, b"from owner", said)


def _send(connection: socket.socket, data: bytes, deadline: Seconds) -> None:
    connection.settimeout(_left(deadline))
    try:
        connection.sendall(data)
    except TimeoutError:
        raise PeerError("the handshake took too long") from None
    except OSError as error:
        raise GoneError(f"the connection broke: {error}") from None


def _receive(connection: socket.socket, size: int, deadline: Seconds) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(_left(deadline))
        try:
            more = connection.recv(size - len(data))
        except TimeoutError:
            raise PeerError("the handshake took too long") from None
        except OSError as error:
            raise GoneError(f"the connection broke: {error}") from None
        if not more:
            raise GoneError("the peer closed the connection")
        data += more
    return data


def _left(deadline: Seconds) -> Seconds:
    left = deadline - time.monotonic()
    if left <= 0:
        raise PeerError("the handshake took too long")
    return left
