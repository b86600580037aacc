"""What a server says about itself at /metrics."""

from collections.abc import Callable, Mapping

import aiohttp

from antiphon.errors import PeerError
from antiphon.types import Seconds

_TIMEOUT_S: Seconds = 10.0


async def read_gauges(url: str, api_key: str | None = None) -> Mapping[str, float]:
    """All gauges, each by its name and labels as they stand there.

    Raises `PeerError` if the server does not answer, or not with metrics.
    """
    return await _read(url, api_key, gauges_in)


async def read_samples(url: str, api_key: str | None = None) -> Mapping[str, float]:
    """All samples, counters and buckets too, as `read_gauges`. Raises `PeerError`."""
    return await _read(url, api_key, samples_in)


async def _read(
    url: str, api_key: str | None, parse: Callable[[str], Mapping[str, float]]
) -> Mapping[str, float]:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(url.rstrip("/") + "/metrics") as response,
        ):
            text = await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise PeerError(f"{url}/metrics does not answer: {error or type(error).__name__}") from None
    if response.status != 200:
        raise PeerError(f"{url}/metrics answers {response.status}: {text[:200]}")
    try:
        return parse(text)
    except ValueError as error:
        raise PeerError(f"{url}/metrics can't be read: {error}") from None


def gauges_in(text: str) -> Mapping[str, float]:
    """The gauges of a page in Prometheus's text format. Raises `ValueError` if it is not one."""
    names: set[str] = set()
    gauges: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE ") and line.endswith(" gauge"):
            names.add(line.split()[2])
        elif line and not line.startswith("#") and line.split("{")[0].split()[0] in names:
            series, _, value = line.rpartition(" ")
            gauges[series] = float(value)
    return gauges


def samples_in(text: str) -> Mapping[str, float]:
    """All samples of such a page. Raises `ValueError` if it is not one."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}
