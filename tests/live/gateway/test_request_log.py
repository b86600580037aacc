import io
import json
import re
import threading
from dataclasses import fields
from pathlib import Path

from antiphon.live.gateway import RequestLog
from antiphon.testing.request_records import request_record
from antiphon.types import (
    AttemptRecord,
    Rejected,
    RejectReason,
    RequestId,
    RequestRecord,
)

ROOT = Path(__file__).parents[3]


def record(name: str) -> RequestRecord:
    routed = AttemptRecord(began_at=1.0, routed_at=1.0, route="w0: the only worker")
    return request_record(name, output_tokens=2, arrived_at=1.0, ended_at=2.0, trail=(routed,))


class Disk(io.BytesIO):
    """Writes when it is let, and breaks when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.writing = threading.Event()
        self.broken = False

    def write(self, line: bytes) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.writing.set()
        assert self.free.wait(30)
        if self.broken:
            raise OSError("no space left on device")
        return super().write(line)


def test_each_record_is_a_line_of_json() -> None:
    disk = Disk()
    disk.free.set()
    log = RequestLog(disk)
    log.start()
    refused = Rejected(
        request=RequestId("r2"), reason=RejectReason.QUEUE_FULL, message="come back later"
    )
    log(record("r1"), None)
    log(record("r2"), refused)
    log.close()
    first, second = map(json.loads, disk.getvalue().splitlines())
    assert first["request"] == "r1"
    assert first["outcome"] == "finished"
    assert first["started_at"] is None
    assert "rejected" not in first
    assert second["rejected"] == "queue_full"
    assert log.lost == 0


def test_a_disk_that_falls_behind_costs_lines_and_never_waits() -> None:
    disk = Disk()
    log = RequestLog(disk, max_unwritten=2)
    log.start()
    log(record("r0"), None)
    assert disk.writing.wait(30)  # r0 is with the disk: two more fit
    for number in range(1, 6):
        log(record(f"r{number}"), None)
    assert log.lost == 3
    disk.free.set()
    log.close()
    names = [json.loads(line)["request"] for line in disk.getvalue().splitlines()]
    assert names == ["r0", "r1", "r2"]


def test_a_full_disk_ends_the_log_and_nothing_else(caplog) -> None:
    disk = Disk()
    disk.broken = True
    disk.free.set()
    log = RequestLog(disk)
    log.start()
    for number in range(3):
        log(record(f"r{number}"), None)
    log.close()
    assert log.lost == 3
    assert [entry.message for entry in caplog.records] == [
        "the request log ends: no space left on device",
        "3 lines of the request log were lost",
    ]


def test_every_field_is_documented() -> None:
    page = (ROOT / "docs/reference/request-log.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| ", page, re.M)
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == {field.name for field in fields(RequestRecord)} | {"rejected"}
