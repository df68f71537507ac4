"""What several replicas share: nonces, and the numbers by which each learns of the others' leases."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "nonces", sa.Column("id", sa.String(32), primary_key=True), sa.Column("expires", sa.Float, nullable=False)
    )
    op.create_index("nonces_expiry", "nonces", ["expires"])
    op.create_table(
        "lease_changes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO lease_changes (id, number) VALUES (1, 1)")
    op.add_column("slots", sa.Column("change", sa.BigInteger, nullable=False, server_default="1"))
    op.create_index("slots_change", "slots", ["change"])
    op.create_index("tickets_node", "tickets", ["node", "issued"])
    if op.get_bind().dialect.name == "postgresql":
        # Every node repeats its heartbeat within seconds: what a crash of the server takes costs nothing.
        op.execute("ALTER TABLE newest_heartbeats SET UNLOGGED")
