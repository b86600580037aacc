"""The name by which a tenant's blocks are counted and kept apart where nobody needs its salt."""

from hashlib import blake2b

TENANT_BYTES = 16
_DOMAIN = b"antiphon.tenant"
"""BLAKE2b personalisation: no other digest of a salt is equal to this one."""


def tenant_of(salt: bytes) -> bytes:
    """The tenant whose requests have this salt, as `TENANT_BYTES` bytes that do not reveal it."""
    return blake2b(salt, digest_size=TENANT_BYTES, person=_DOMAIN).digest()
