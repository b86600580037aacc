"""What crosses hosts: certificates, doors that ask for them, and how a process on another host is
reached. Nothing here falls back to a connection without TLS."""

from .dial import Address, TlsAddress, dial
from .host_keys import GATEWAY_NAME, HostKeys, host_in, may_speak_for, read_host_keys, tls_name
from .reach import Reach, reach_of
from .tls_door import TlsDoor, bound
from .worker_door import WorkerDoor, worker_door

__all__ = [
    "GATEWAY_NAME",
    "Address",
    "HostKeys",
    "Reach",
    "TlsAddress",
    "TlsDoor",
    "WorkerDoor",
    "bound",
    "dial",
    "host_in",
    "may_speak_for",
    "reach_of",
    "read_host_keys",
    "tls_name",
    "worker_door",
]
