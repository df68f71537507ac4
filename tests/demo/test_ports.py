"""Ports that stay free until the process they are for listens."""

import socket

import pytest

from demo.ports import claim_port
from protocol.errors import ConfigError


def test_claimed_ports_differ_and_no_outgoing_connection_takes_them() -> None:
    ports = [claim_port("a test", 0) for _ in range(100)]
    assert len(set(ports)) == 100
    with socket.socket() as outgoing:
        outgoing.bind(("127.0.0.1", 0))
        assert outgoing.getsockname()[1] > max(ports)


def test_a_taken_port_is_refused_by_name() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="for the chain is in use"):
            claim_port("the chain", other.getsockname()[1])
