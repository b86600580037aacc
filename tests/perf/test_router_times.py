import pytest

from antiphon.errors import UsageError
from antiphon.perf import DEFAULT_LINK_TIME, DEFAULT_STEP_TIME, LinkTime, read_times, write_times


def test_what_is_written_is_read() -> None:
    link = LinkTime(setup_s=0.5, bytes_per_s=3e9)
    times = read_times(write_times(DEFAULT_STEP_TIME, link), step_tokens=128)
    assert times.transfers == link
    assert times.phases == read_times("", step_tokens=128).phases
    assert read_times("", step_tokens=128).transfers == DEFAULT_LINK_TIME


@pytest.mark.parametrize("text", ["{", "{}", '{"step_time": {}, "link_time": {}}'])
def test_what_is_no_record_of_times_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        read_times(text, step_tokens=128)
    with pytest.raises(UsageError, match="can't be read"):
        read_times("", step_tokens=0)
