"""`python -m benchmarks.delay PORT TO SECONDS`: passes TCP on to a port of this host, every byte so much later."""

import asyncio
import sys
from contextlib import suppress

from protocol.files import die_with_parent

CHUNK = 256 << 10
# Chunks on their way in one direction of one connection, at most.
MOST = 32


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Until either side ends."""
    loop, due = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]](MOST)

    async def read() -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await due.put((loop.time() + seconds, data))
        await due.put((loop.time() + seconds, b""))

    reading = asyncio.ensure_future(read())
    try:
        with suppress(OSError):
            while True:
                at, data = await due.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not data:
                    return
                writer.write(data)
                await writer.drain()
    finally:
        reading.cancel()
        if writer.can_write_eof():
            writer.write_eof()


async def main(port: int, to: int, seconds: float) -> None:
    running = set[asyncio.Task[None]]()

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            running.add(task)  # the loop alone would forget it once its client is gone
            task.add_done_callback(running.discard)
        with suppress(OSError):
            behind, before = await asyncio.open_connection("127.0.0.1", to)
            ways = pass_on(reader, before, seconds), pass_on(behind, writer, seconds)
            await asyncio.gather(*ways, return_exceptions=True)
            before.close()
        writer.close()

    async with await asyncio.start_server(both, "0.0.0.0", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
