"""A certificate authority of our own."""

import subprocess
from pathlib import Path


def make_authority(folder: Path) -> tuple[Path, Path]:
    """Write the certificate of `our own authority`, which is also that of the server 127.0.0.1, and its key."""
    certificate, key = folder / "authority.pem", folder / "authority.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=our own authority"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
