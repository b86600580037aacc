"""The cluster's own authority, and the keys that it makes: what `antiphon cluster keys` does.

    FOLDER/authority/   authority.pem, authority.key    stays with the operator
           box1/        authority.pem, host.pem, host.key   to be copied to that host, alone
           box2/        …

A folder is written beside its place and moved there when it is whole; nothing that is there is
written again. Files are this user's alone (0600).
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from antiphon.core.host_names import is_host_name
from antiphon.errors import UsageError
from antiphon.live.socket_folder import private_folder
from antiphon.types import HostName

from .host_keys import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    GATEWAY_NAME,
    KEY_FILE,
    check_secret,
    is_gateways,
    read_certificate,
    read_pem,
    tls_name,
)

AUTHORITY = "authority"
"""Its folder; no host can be called so."""
AUTHORITY_DAYS = 3650
_AUTHORITY_KEY = "authority.key"
_BACKDATED = timedelta(days=1)
"""Certificates are in force from a day before: hosts' clocks differ."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Whom the hosts of one cluster believe, with the secret by which it signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def open_authority(folder: Path, days: int = AUTHORITY_DAYS) -> tuple[Authority, bool]:
    """The authority in `folder`, and whether it was made now. Raises `UsageError`."""
    private_folder(folder, "folder of keys")
    own = folder / AUTHORITY
    if own.exists():
        return _read(own), False
    authority = _made(days)
    _write(own, {_AUTHORITY_KEY: _secret(authority.key), AUTHORITY_FILE: _pem(authority)})
    return authority, True


def add_host(
    folder: Path, authority: Authority, host: HostName, *, gateway: bool, days: int
) -> Path:
    """Make the keys of one host; returns their folder.

    Raises `UsageError` if it has some, or can't be called so.
    """
    check_new_host(folder, host)
    own = folder / host
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(authority, host, key, gateway=gateway, days=days)
    files = {
        KEY_FILE: _secret(key),
        CERTIFICATE_FILE: certificate.public_bytes(serialization.Encoding.PEM),
        AUTHORITY_FILE: _pem(authority),
    }
    _write(own, files)
    return own


def _made(days: int) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"Antiphon cluster {secrets.token_hex(4)}")]
    )
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def _signed(
    authority: Authority,
    host: HostName,
    key: ec.EllipticCurvePrivateKey,
    *,
    gateway: bool,
    days: int,
) -> x509.Certificate:
    issuer = authority.certificate
    names = [tls_name(host), *([GATEWAY_NAME] if gateway else [])]
    now = datetime.now(UTC)
    ends = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    begins = max(now - _BACKDATED, issuer.not_valid_before_utc)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(begins, ends - timedelta(seconds=1)))
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read(own: Path) -> Authority:
    certificate = read_certificate(own / AUTHORITY_FILE)
    file = own / _AUTHORITY_KEY
    data = read_pem(file)
    check_secret(file)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{file}: holds no private key of an authority that was made here")
    if certificate.not_valid_after_utc <= datetime.now(UTC):
        raise UsageError(
            f"{own / AUTHORITY_FILE}: has expired: begin a new folder, and give all hosts new keys"
        )
    return Authority(certificate, key)


def _pem(authority: Authority) -> bytes:
    return authority.certificate.public_bytes(serialization.Encoding.PEM)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(own: Path, files: Mapping[str, bytes]) -> None:
    """All or nothing. Raises `UsageError`."""
    new = own.with_name(f".{own.name}.{secrets.token_hex(4)}")
    try:
        new.mkdir(mode=0o700)
        for name, data in files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(new / name, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        new.rename(own)
    except OSError as error:
        raise UsageError(f"{own}: can't be written: {error.strerror}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check_hosts(folder: Path, hosts: Mapping[HostName, bool]) -> None:
    """Raises `UsageError` if one of them can't be added: before any is. Each says whether it is the
    gateway's, of which a cluster has one."""
    for host in hosts:
        check_new_host(folder, host)
    there = _hosts_in(folder)
    if there and not (folder / AUTHORITY).exists():
        raise UsageError(
            f"{folder}: has keys of {there[0].name}, but no {AUTHORITY}: hosts of a new one would "
            f"not be believed by it: bring that folder back, or begin a new one for all hosts"
        )
    new = [host for host, gateway in hosts.items() if gateway]
    if len(new) > 1:
        raise UsageError(f"{' and '.join(new)}: a cluster has one host with the gateway")
    for own in there if new else ():
        if is_gateways(read_certificate(own / CERTIFICATE_FILE)):
            raise UsageError(
                f"{own}: are the gateway's keys, and a cluster has one gateway: remove them if "
                f"{new[0]} is to have it"
            )


def _hosts_in(folder: Path) -> list[Path]:
    """Folders of hosts that have keys here. Raises `UsageError`."""
    try:
        found = (file.parent for file in folder.glob(f"*/{CERTIFICATE_FILE}"))
        return sorted(own for own in found if is_host_name(own.name))
    except OSError as error:
        raise UsageError(f"{folder}: can't be read: {error.strerror}") from None


def check_new_host(folder: Path, host: HostName) -> None:
    """Raises `UsageError` if it has keys, or can't be called so."""
    if not is_host_name(host) or host == AUTHORITY:
        raise UsageError(
            f"host {host!r:.60}: a host's name has lower-case letters, digits and dashes, at most "
            f'32, and is not "{AUTHORITY}"'
        )
    if (folder / host).exists():
        raise UsageError(
            f"{folder / host}: is there already, and is not written again: remove it if {host} is "
            f"to have new keys"
        )
