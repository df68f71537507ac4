"""`python -m benchmarks.delay PORT TO SECONDS`: passes TCP on to a port of this host, every byte so much later."""

import asyncio
import sys
from collections import deque

from protocol.files import die_with_parent

CHUNK = 256 << 10
MOST = 8 << 20
"""Bytes on their way in one direction of one connection."""


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    """Until either side ends."""
    loop, due = asyncio.get_running_loop(), deque[tuple[float, bytes]]()
    held, news, room = [0], asyncio.Event(), asyncio.Event()

    async def read() -> None:
        try:
            while data := await reader.read(CHUNK):
                due.append((loop.time() + seconds, data))
                held[0] += len(data)
                news.set()
                while held[0] > MOST:
                    room.clear()
                    await room.wait()
        except OSError:
            pass
        due.append((loop.time() + seconds, b""))
        news.set()

    reading = asyncio.ensure_future(read())
    try:
        while True:
            while not due:
                news.clear()
                await news.wait()
            at, data = due.popleft()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not data:
                return
            writer.write(data)
            await writer.drain()
            held[0] -= len(data)
            room.set()
    except OSError:
        return
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
        try:
            behind, before = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        ways = passed_on(reader, before, seconds), passed_on(behind, writer, seconds)
        await asyncio.gather(*ways, return_exceptions=True)
        for one in (writer, before):
            one.close()

    server = await asyncio.start_server(both, "0.0.0.0", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
