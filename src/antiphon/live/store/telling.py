"""What a store holds, told over a stream: to a gateway, and to the stores of its pool."""

from contextlib import suppress

from antiphon.errors import PeerError
from antiphon.live.kv_journal import KvFeed
from antiphon.types import KvDump
from antiphon.wire import FrameStream, Kind


async def tell_kv(stream: FrameStream, feed: KvFeed) -> None:
    """As fast as the other side reads. One that reads too slowly gets a dump."""
    with suppress(PeerError):  # the stream is over, and says so itself
        async for news in feed.kv_news():
            await stream.room()
            kind = Kind.KV_DUMP if isinstance(news, KvDump) else Kind.KV_EVENTS
            stream.send(kind, news)
