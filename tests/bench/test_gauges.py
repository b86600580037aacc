import pytest
from aiohttp import web

from antiphon.bench import read_gauges
from antiphon.bench.gauges import gauges_in, samples_in
from antiphon.errors import PeerError

PAGE = """# HELP a_pages Pages.
# TYPE a_pages gauge
a_pages{worker="p 0"} 3.0
a_pages{worker="p-1"} 0.0
# TYPE b_total counter
b_total 7.0
# TYPE c gauge
c 1.5
"""


def test_gauges_are_kept_by_series_and_counters_are_left_out() -> None:
    expected = {'a_pages{worker="p 0"}': 3.0, 'a_pages{worker="p-1"}': 0.0, "c": 1.5}
    assert gauges_in(PAGE) == expected


def test_samples_are_all_of_them() -> None:
    assert samples_in(PAGE) == {**gauges_in(PAGE), "b_total": 7.0}
    with pytest.raises(ValueError, match="could not convert"):
        samples_in("<html> no metrics")


async def test_the_key_goes_with_the_call_and_a_refusal_is_an_error() -> None:
    async def metrics(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer k":
            return web.Response(status=401, text="no key")
        return web.Response(text=PAGE)

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        assert (await read_gauges(url, "k"))["c"] == 1.5
        with pytest.raises(PeerError, match="401"):
            await read_gauges(url)
    finally:
        await runner.cleanup()
    with pytest.raises(PeerError, match="does not answer"):
        await read_gauges(url)


async def test_a_page_that_is_no_metrics() -> None:
    with pytest.raises(ValueError):
        gauges_in("# TYPE a gauge\na much")
