"""Who listens on a port is named, and nobody who does not."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.host import port_owner

CHILD = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as one:
    print(one.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_socket_that_listens_is_its_process(family: socket.AddressFamily, address: str) -> None:
    try:
        listener = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip("this host has no such addresses")
    with listener:
        port = listener.getsockname()[1]
        assert str(port_owner(address, port)).endswith(f"(pid {os.getpid()})")
    assert port_owner(address, port) is None


def test_another_process_is_named_by_its_command() -> None:
    command = [sys.executable, "-c", CHILD, "made\x1bup"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdin is not None
        owner = port_owner("127.0.0.1", int(child.stdout.readline()))
        child.stdin.close()
    assert owner is not None
    assert owner.startswith(f"`{sys.executable}"[:50])
    assert owner.endswith(f"(pid {child.pid})")
    assert owner.isprintable()


def test_of_one_port_at_two_addresses_each_has_its_own() -> None:
    """A name stands for all addresses, and so does one that is none."""
    with socket.create_server(("127.0.0.2", 0)) as one:
        port = one.getsockname()[1]
        assert port_owner("127.0.0.2", port)
        assert port_owner("127.0.0.1", port) is None
        assert port_owner("0.0.0.0", port)
        assert port_owner("localhost", port)


def test_a_connection_is_no_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        calling = socket.create_connection(("127.0.0.1", port))
        with calling, server.accept()[0]:
            assert port_owner(*calling.getsockname()) is None


def test_a_system_without_proc_names_nobody(tmp_path: Path) -> None:
    assert port_owner("127.0.0.1", 80, tmp_path) is None
