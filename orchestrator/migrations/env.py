"""Alembic's entry point: runs the migrations over the connection that `orchestrator.db` opened."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transaction_per_migration=False)
context.run_migrations()
