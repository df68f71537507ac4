"""Ports that stay free until the process they are for listens."""

import socket
import subprocess
import sys

import pytest

from localnet import ports
from localnet.ports import claim_port


def test_claimed_ports_differ_and_no_outgoing_connection_takes_them() -> None:
    claimed = [claim_port() for _ in range(100)]
    assert len(set(claimed)) == 100
    with socket.socket() as outgoing:
        outgoing.bind(("127.0.0.1", 0))
        assert outgoing.getsockname()[1] > max(claimed)


def test_processes_claim_different_ports_until_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens yet, so no port is seen to be taken."""
    start = min(claim_port(), ports._RANGE.stop - 60)
    few = range(start, start + 60)
    code = (
        "import sys\nfrom localnet import ports\nports._RANGE = range(int(sys.argv[1]), int(sys.argv[2]))\n"
        "print(*[ports.claim_port() for _ in range(20)], flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(few.start), str(few.stop)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        assert len(theirs) == 20
        monkeypatch.setattr(ports, "_RANGE", few)
        for _ in range(10):
            assert claim_port() not in theirs
    monkeypatch.setattr(ports, "_RANGE", range(min(theirs), min(theirs) + 1))
    assert claim_port() in theirs, "whoever ended claims nothing"
