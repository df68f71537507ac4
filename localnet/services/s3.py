"""A local S3 server that really checks signatures and checksums: `python -m localnet.services.s3 --data DIR --port N`.

OpenStack Swift's S3 API as one foreground process. Prints one READY line; SIGTERM and SIGINT stop it (exit 0); data
survive `kill -9`. The access key is made on the first start: DIR/etc/credentials.json, mode 0600.
"""

import argparse
import logging
import os
import sys
import time
import warnings
from pathlib import Path

from localnet.ports import claim, lock_folder
from protocol.errors import ConfigError
from runtime.entry import run_main

INSTALL_SWIFT = "install muster[localnet] (Linux only); in a checkout: make setup"


def main() -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="python -m localnet.services.s3", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that holds everything")
    parser.add_argument("--port", type=int, default=9000, help="port on 127.0.0.1 (default %(default)s)")
    parser.add_argument("--bucket", default="muster", help="bucket made on start (default %(default)s)")
    options = parser.parse_args()
    os.umask(0o077)
    _lock = lock_folder(options.data, "S3 server")
    claim(options.port, "the S3 server")
    warnings.filterwarnings("ignore", message="\n*Eventlet is deprecated")
    try:
        import eventlet

        # First of all: its search for locks stumbles over pydantic's models, which the server's modules bring.
        logging.disable()  # It would complain of the locks behind our file locks, which no green thread takes.
        eventlet.monkey_patch(all=False, socket=True, select=True, thread=True, time=True)
        logging.disable(logging.NOTSET)
        from localnet.services.swift import SwiftServer
        from localnet.services.swift_conf import prepare
    except ImportError as error:
        raise ConfigError(f"Swift is not installed ({error.name})", INSTALL_SWIFT) from None
    layout = prepare(options.data, options.port, options.bucket)
    server = SwiftServer(layout)
    server.start()
    seconds = time.monotonic() - started
    where = f"http://127.0.0.1:{layout.port} bucket={layout.bucket} region={layout.region}"
    print(f"READY {where} credentials={layout.credentials} seconds={seconds:.2f}", flush=True)
    server.serve()
    sys.stdout.flush()
    os._exit(0)  # eventlet's hub would keep threads of its own; the lock of the folder ends with the process


if __name__ == "__main__":
    run_main(main)
