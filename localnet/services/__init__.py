"""Services that muster runs as its own children: a local chain and a local S3 server."""
