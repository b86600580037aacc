"""Why nobody who can be joined answers at an address of another host, and what to do about it."""

import errno
import socket
import ssl
from dataclasses import dataclass

from antiphon.live.failure import why

_EXPIRED = 10
"""OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED."""
_OF_OTHER_TLS = ("SSLV3_ALERT_", "TLSV1_", "TLSV13_ALERT_", "UNSUPPORTED_PROTOCOL")
"""How OpenSSL's reasons begin where the other side speaks TLS, and ended the handshake by an alert
or wanted an older one."""
_NO_WAY = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """`problem`: what was found, in words and without the address; `remedy`: what to do, or ""."""

    problem: str
    remedy: str = ""


_OTHER_PROGRAM = "another program has that port: correct the port in the file, or stop the program"
HUNG_UP = Unanswered(
    "it hangs up before its first answer: it does not take these keys, or is about to end",
    "see what the log of that host says of it; if it is the keys, give both hosts keys that one "
    "authority made (antiphon cluster keys), and set its clock",
)
"""A handshake went well here, and the stream ended unanswered: in TLS 1.3 a client hears only after
its handshake that its certificate was refused."""


def unanswered(error: BaseException, name: str) -> Unanswered:
    """What `error` says of an address at which `name` should show its certificate.

    An alert within the handshake is never about our certificate (`HUNG_UP` is): doors of Antiphon
    send none there.
    """
    match error:
        case ssl.SSLCertVerificationError():
            return _other_certificate(error, name)
        case ConnectionRefusedError():
            return Unanswered(
                "nothing listens there",
                "start Antiphon on that host, or correct the port in the file",
            )
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionError() | EOFError():
            return Unanswered(
                "it hangs up while it is greeted",
                "another program may have that port, or that host has no keys: look into its log",
            )
        case ssl.SSLError(reason=str(reason)) if reason.startswith(_OF_OTHER_TLS):
            return Unanswered(
                "what answers there is not Antiphon, though it speaks TLS", _OTHER_PROGRAM
            )
        case ssl.SSLError():
            return Unanswered("what answers there speaks no TLS", _OTHER_PROGRAM)
        case TimeoutError():
            return Unanswered(
                "no answer in time",
                "let the port through the firewalls on the way, and see whether the address is "
                "that host's",
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
