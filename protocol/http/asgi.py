"""What our HTTP server offers its applications besides ASGI."""

WHOLE_BODY = "muster.whole_body"
"""The extension that says, called, whether what is left of a request's body has come: one message has it, and reading
that waits for nothing."""
SEND_FILE = "muster.send_file"
"""The extension that sends a part of a file as an answer's next bytes, without a copy of them in this process: (file,
first byte, size in bytes), awaited until the client has taken nearly all of them. Raises OSError if it cannot go on,
`asyncio.SendfileNotAvailableError` for a file of a kind that cannot be sent so."""
