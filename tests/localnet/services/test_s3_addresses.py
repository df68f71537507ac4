"""Whom the S3 server listens to."""

import socket
from pathlib import Path

from tests.localnet.services.running import ServiceProcess, running


def test_no_other_address_of_the_machine_is_listened_on(tmp_path: Path) -> None:
    with running(ServiceProcess("s3", tmp_path / "s3")) as service, socket.socket() as client:
        client.settimeout(10)
        assert client.connect_ex(("127.0.0.2", service.port)) != 0
