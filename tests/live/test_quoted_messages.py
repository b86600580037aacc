"""What the guides quote is what the program says."""

from pathlib import Path

import pytest

from antiphon.errors import UsageError
from antiphon.live.listener import listen
from antiphon.types import HttpConfig

QUICKSTART = Path(__file__).parents[2] / "docs/guides/quickstart.md"


def test_the_quickstart_quotes_the_message_of_a_taken_port() -> None:
    with listen(HttpConfig(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError) as caught:
            listen(HttpConfig(port=port))
    message = str(caught.value).replace(f"port {port} ", "port 8000 ")
    assert f"antiphon: {message}\n" in QUICKSTART.read_text()
