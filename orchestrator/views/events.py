"""`GET /v1/events`: word that something has changed, as server-sent events; pages need not ask again and again."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from orchestrator.http_errors import HttpError
from orchestrator.service import Service

TICK_SECONDS = 1.0
QUIET_SECONDS = 10.0
MOST_STREAMS = 256
# Not in the OpenAPI document: it describes answers that end.
router = APIRouter(include_in_schema=False)


@router.get("/v1/events")
async def get_events(request: Request) -> StreamingResponse:
    """An event `change` when files, votes or steps changed, and at least every ten seconds: heartbeats age, too."""
    open_streams: set[object] = request.app.state.streams
    if len(open_streams) >= MOST_STREAMS:
        raise HttpError(503, f"{MOST_STREAMS} pages follow this run already", "ask for the pages again and again", 10)
    return StreamingResponse(_changes(request, request.app.state.service, open_streams), media_type="text/event-stream")


async def _changes(request: Request, service: Service, open_streams: set[object]) -> AsyncIterator[str]:
    stream, told, quiet = object(), -1, 0.0
    open_streams.add(stream)
    try:
        while not await request.is_disconnected():
            state = service.watch.state
            if state.version != told or quiet >= QUIET_SECONDS:
                told, quiet = state.version, 0.0
                yield f"event: change\ndata: {json.dumps({'version': state.version, 'head': state.head})}\n\n"
            await asyncio.sleep(TICK_SECONDS)
            quiet += TICK_SECONDS
    finally:
        open_streams.discard(stream)
