"""A host's certificate and key: who it is to other hosts of its cluster, and whom it believes.

    FOLDER/authority.pem   whom this host believes: the cluster's own authority, and nobody else
           host.pem        what it shows; names box2.host.antiphon, at the gateway's host also
                           gateway.antiphon
           host.key        its secret, 0600

A connection is TLS 1.3, both sides show a certificate, and whoever connects knows which name the
other side must have. Sessions are not resumed: each connection looks at both certificates.
"""

import os
import ssl
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.core.host_names import is_host_name, is_worker_on
from antiphon.errors import UsageError
from antiphon.types import HostName, WorkerId

# `cryptography` takes 50 ms to load: only processes that have keys load it, when they read them.
if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE = "authority.pem", "host.pem", "host.key"
GATEWAY_NAME = "gateway.antiphon"
"""In the certificate of the gateway's host alone, so that no other can pose as the gateway."""
_SUFFIX = ".host.antiphon"
_MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeys:
    """A host's keys, which were whole and in force when they were read."""

    folder: Path
    host: HostName
    gateway: bool
    expires: datetime

    def server(self) -> ssl.SSLContext:
        """For those who connect to this host. The files are read anew. Raises `UsageError`."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        context.num_tickets = 0
        return context

    def client(self) -> ssl.SSLContext:
        """For connections to other hosts, whose names are checked. Raises `UsageError`."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = True
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _context(self, side: int) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        try:
            context.load_cert_chain(self.folder / CERTIFICATE_FILE, self.folder / KEY_FILE)
            context.load_verify_locations(self.folder / AUTHORITY_FILE)
        except OSError as error:
            raise UsageError(f"keys {self.folder}: can't be used: {error}") from None
        return context


def tls_name(host: HostName) -> str:
    """The name of a host in its certificate."""
    return host + _SUFFIX


def host_in(names: Iterable[str]) -> HostName | None:
    """The host that a certificate with these names is of; None: of none of ours."""
    hosts = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return hosts[0] if len(hosts) == 1 and is_host_name(hosts[0]) else None


def may_speak_for(names: Iterable[str], worker: WorkerId) -> bool:
    """Whether whoever shows a certificate with these names can be that worker: one on its host, or
    at the gateway's host one that is called after no host."""
    names = tuple(names)
    host = host_in(names)
    if host is None:
        return False
    return is_worker_on(host, worker) or (GATEWAY_NAME in names and "." not in worker)


def read_host_keys(folder: Path, now: datetime | None = None) -> HostKeys:
    """The keys in `folder`, checked. Raises `UsageError`, which names file and remedy.

    They belong together, nobody else can read the key, and the certificate is in force at `now`.
    """
    certificate = _certificate(folder / CERTIFICATE_FILE)
    authority = _certificate(folder / AUTHORITY_FILE)
    _check_signed(folder, certificate, authority)
    _check_key(folder / KEY_FILE, certificate)
    names = _names(certificate)
    host = host_in(names)
    if host is None:
        raise UsageError(f"{folder / CERTIFICATE_FILE}: is of no host of an Antiphon cluster")
    _check_in_force(folder, host, certificate, authority, now or datetime.now(UTC))
    return HostKeys(
        folder=folder.absolute(),
        host=host,
        gateway=GATEWAY_NAME in names,
        expires=min(certificate.not_valid_after_utc, authority.not_valid_after_utc),
    )


def read_certificate(file: Path) -> "x509.Certificate":
    """Raises `UsageError` if there is none."""
    return _certificate(file)


def is_gateways(certificate: "x509.Certificate") -> bool:
    """Whether it is of the host that has the gateway."""
    return GATEWAY_NAME in _names(certificate)


def read_pem(file: Path) -> bytes:
    """What a file of keys holds. Raises `UsageError`."""
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_FILE_BYTES)
    except FileNotFoundError:
        raise UsageError(
            f"{file}: is not there: make keys (antiphon cluster keys FOLDER --host NAME), and "
            f"name the folder of this host (--keys FOLDER/NAME)"
        ) from None
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror}") from None


def check_secret(file: Path) -> None:
    """Raises `UsageError` if others can read it."""
    try:
        facts = file.stat()
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror}") from None
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise UsageError(f"{file}: others can read this secret: chmod 600 {file}")
    if facts.st_uid not in (0, os.geteuid()):
        raise UsageError(f"{file}: belongs to another user")


def _certificate(file: Path) -> "x509.Certificate":
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(read_pem(file))
    except ValueError:
        raise UsageError(f"{file}: holds no certificate") from None


def _check_signed(
    folder: Path, certificate: "x509.Certificate", authority: "x509.Certificate"
) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise UsageError(
            f"keys {folder}: {CERTIFICATE_FILE} is not by the authority of {AUTHORITY_FILE}: copy "
            f"the folder of this host anew"
        ) from None


def _check_key(file: Path, certificate: "x509.Certificate") -> None:
    from cryptography.hazmat.primitives import serialization

    data = read_pem(file)
    check_secret(file)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        raise UsageError(f"{file}: holds no private key") from None
    if _public(key.public_key()) != _public(certificate.public_key()):
        raise UsageError(f"{file}: is not the key of {CERTIFICATE_FILE} beside it")


def _public(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _names(certificate: "x509.Certificate") -> list[str]:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return names.value.get_values_for_type(x509.DNSName)


def _check_in_force(
    folder: Path,
    host: HostName,
    certificate: "x509.Certificate",
    authority: "x509.Certificate",
    now: datetime,
) -> None:
    for name, one in ((CERTIFICATE_FILE, certificate), (AUTHORITY_FILE, authority)):
        if now >= one.not_valid_after_utc:
            raise UsageError(
                f"{folder / name}: has expired on {one.not_valid_after_utc:%Y-%m-%d}: make new "
                f"keys for {host} (antiphon cluster keys)"
            )
        if now < one.not_valid_before_utc:
            raise UsageError(
                f"{folder / name}: is not in force before {one.not_valid_before_utc:%Y-%m-%d}: "
                f"is this machine's date right?"
            )
