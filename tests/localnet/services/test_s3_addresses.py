"""Whom the S3 server listens to."""

import socket
from pathlib import Path

import pytest

from tests.localnet.services.running import ServiceProcess, running

OTHER = "127.0.0.2"
"""An address of this machine that is not 127.0.0.1."""


@pytest.mark.parametrize(("options", "heard"), [((), False), (("--everywhere",), True)])
def test_other_addresses_of_the_machine_are_listened_on_only_if_asked_for(
    options: tuple[str, ...], heard: bool, tmp_path: Path
) -> None:
    with running(ServiceProcess("s3", tmp_path / "s3", *options)) as service, socket.socket() as client:
        client.settimeout(10)
        assert (client.connect_ex((OTHER, service.port)) == 0) == heard
