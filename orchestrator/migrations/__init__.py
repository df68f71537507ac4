"""Alembic's steps from one layout of the database to the next; `orchestrator.schema` takes them."""
