"""A made-up chain behind real HTTP, in a process of its own: `python -m benchmarks.made_up_rpc BLOCKS FILES`.

Prints its URL and its number of events when it is ready, and ends with its standard input.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.made_up_chain import Endpoint, MadeUpChain


def serve(endpoint: Endpoint) -> ThreadingHTTPServer:
    """A server of `endpoint` on a free port, in a thread."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(endpoint.answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@contextmanager
def endpoint_process(blocks: int, files: int) -> Iterator[tuple[str, int]]:
    """The URL of a process that serves such a chain, and the number of its events."""
    command = [sys.executable, "-m", "benchmarks.made_up_rpc", str(blocks), str(files)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        url, events = child.stdout.readline().split()
        yield url, int(events)
        child.stdin.close()


def main(blocks: int, files: int) -> None:
    chain = MadeUpChain(files)
    chain.grow(blocks)
    server = serve(Endpoint(chain))
    print(f"http://127.0.0.1:{server.server_address[1]} {sum(len(one.logs) for one in chain.blocks)}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
