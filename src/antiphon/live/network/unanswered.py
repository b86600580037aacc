"""Why nobody who can be joined answers at an address of another host, and what to do about it."""

import errno
import socket
import ssl
from dataclasses import dataclass

from antiphon.live.failure import why

_EXPIRED = 10
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED."""
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """`problem`: what was found, in words and without the address; `remedy`: what to do, or ""."""

    problem: str
    remedy: str = ""


def unanswered(error: BaseException, name: str) -> Unanswered:
    """What `error` says of an address at which `name` should show its certificate."""
    match error:
        case ssl.SSLCertVerificationError():
            return _other_certificate(error, name)
        case ssl.SSLError(reason=str(reason)) if "ALERT" in reason:
            return Unanswered(
                "it does not take these keys", "use keys that its cluster's authority made"
            )
        case ssl.SSLError():
            return Unanswered(
                "what answers there speaks no TLS",
                "another program has that port: correct the port in the file, or stop the program",
            )
        case TimeoutError():
            return Unanswered(
                "no answer in time",
                "let the port through the firewalls on the way, and see whether the address is "
                "that host's",
            )
        case ConnectionRefusedError():
            return Unanswered(
                "nothing listens there",
                "start Antiphon on that host, or correct the port in the file",
            )
        case ConnectionError() | EOFError():
            return Unanswered(
                "it hangs up while it is greeted",
                "another program may have that port, or that host has no keys: look into its log",
            )
        case socket.gaierror():
            return Unanswered(
                "its name is not known here", "write its address, or have the name resolved here"
            )
        case OSError(errno=number) if number in _NO_WAY:
            return Unanswered(
                "there is no way to it from here",
                "correct the address in the file, or this host's routes (`ip route get ADDRESS`)",
            )
        case _:
            return Unanswered(why(error))


def _other_certificate(error: ssl.SSLCertVerificationError, name: str) -> Unanswered:
    if error.verify_code == _EXPIRED:
        return Unanswered(
            "its certificate has expired", "make new keys for that host (antiphon cluster keys)"
        )
    return Unanswered(
        f"its certificate is not {name}'s of this cluster: {error.verify_message}",
        "copy the keys that this cluster's authority made for that host there, or correct the "
        "address in the file",
    )
