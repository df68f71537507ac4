"""The initial schema (`orchestrator.db` maps it)."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "meta", sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False)
    )
    op.create_table(
        "heartbeats",
        sa.Column("address", sa.String(42), primary_key=True),
        sa.Column("last_seen", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_index("heartbeats_last_seen", "heartbeats", ["last_seen"])
    op.create_table(
        "leases",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("node", sa.String(42), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("counter", sa.Integer, nullable=False),
        sa.Column("granted", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("ends", sa.Float, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
        sa.Column("change", sa.BigInteger, nullable=False),
    )
    op.create_index("leases_open", "leases", ["open", "expires"])
    op.create_index("leases_change", "leases", ["change"])
    op.create_index("leases_granted", "leases", ["granted"])
    op.create_table(
        "lease_changes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.execute("INSERT INTO lease_changes (id, number) VALUES (1, 0)")
    op.create_table(
        "nonces", sa.Column("id", sa.String(32), primary_key=True), sa.Column("expires", sa.Float, nullable=False)
    )
    op.create_index("nonces_expires", "nonces", ["expires"])
    op.create_table(
        "tickets",
        sa.Column("key", sa.String(160), primary_key=True),
        sa.Column("node", sa.String(42), primary_key=True),
        sa.Column("issued", sa.Float, nullable=False),
        sa.Column("used", sa.Boolean, nullable=False),
    )
    op.create_index("tickets_node", "tickets", ["node", "issued"])
    op.create_table(
        "receipt_times",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("node", sa.String(42), primary_key=True),
        sa.Column("time", sa.Integer, nullable=False),
    )
    op.create_table(
        "step_reports",
        sa.Column("step", sa.Integer, primary_key=True),
        sa.Column("reported", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "consumed",
        sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("sha256", sa.String(64), nullable=False),
    )
    op.create_table(
        "solve_counts",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("counts", sa.Text, nullable=False),
    )
