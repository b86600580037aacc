"""How `types` look outside the process: encoded by msgspec, without mirror classes."""

from .calls import Calls
from .codec import (
    FROM_POOLED_STORE,
    FROM_PROBED,
    FROM_STORE,
    FROM_STRANGE_CALLERS,
    FROM_STRANGE_STORES,
    FROM_STRANGE_TAKERS,
    FROM_STRANGERS,
    PROBES,
    TO_GATEWAY,
    TO_OWNER,
    TO_POOLED_STORE,
    TO_STORE,
    TO_TAKER,
    TO_WATCHED_STORE,
    TO_WORKER,
    Kind,
    MessageTooLongError,
    decode,
    encode,
)
from .decision_log import DecisionLogWriter, read_decision_log
from .durations import from_durations, to_durations
from .event_batch import pack_events, unpack_events
from .frame import PROTOCOL_VERSION, Frame, FrameError, FrameReader, OtherVersionError, pack_frame
from .loop_socket import owned_by_loop
from .quiet_log import QuietLog
from .stream import Ending, FrameStream

__all__ = [
    "FROM_POOLED_STORE",
    "FROM_PROBED",
    "FROM_STORE",
    "FROM_STRANGERS",
    "FROM_STRANGE_CALLERS",
    "FROM_STRANGE_STORES",
    "FROM_STRANGE_TAKERS",
    "PROBES",
    "PROTOCOL_VERSION",
    "TO_GATEWAY",
    "TO_OWNER",
    "TO_POOLED_STORE",
    "TO_STORE",
    "TO_TAKER",
    "TO_WATCHED_STORE",
    "TO_WORKER",
    "Calls",
    "DecisionLogWriter",
    "Ending",
    "Frame",
    "FrameError",
    "FrameReader",
    "FrameStream",
    "Kind",
    "MessageTooLongError",
    "OtherVersionError",
    "QuietLog",
    "decode",
    "encode",
    "from_durations",
    "owned_by_loop",
    "pack_events",
    "pack_frame",
    "read_decision_log",
    "to_durations",
    "unpack_events",
]
