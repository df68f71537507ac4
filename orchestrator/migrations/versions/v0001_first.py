"""The first layout: leases, upload tickets, receipts, heartbeats, the trainer's reports."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "meta", sa.Column("key", sa.String(64), primary_key=True), sa.Column("value", sa.Text, nullable=False)
    )
    op.create_table(
        "newest_heartbeats",
        sa.Column("address", sa.String(42), primary_key=True),
        sa.Column("last_seen", sa.Float, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "slots",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("node", sa.String(42), nullable=False),
        sa.Column("step", sa.Integer, nullable=False),
        sa.Column("counter", sa.Integer, nullable=False),
        sa.Column("granted", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
        sa.Column("ends", sa.Float, nullable=False),
        sa.Column("open", sa.Boolean, nullable=False),
    )
    op.create_index("slots_open", "slots", ["open", "node"])
    op.create_table(
        "tickets",
        sa.Column("key", sa.String(160), primary_key=True),
        sa.Column("node", sa.String(42), primary_key=True),
        sa.Column("issued", sa.Float, nullable=False),
        sa.Column("used", sa.Boolean, nullable=False),
    )
    op.create_table(
        "receipt_times",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("node", sa.String(42), primary_key=True),
        sa.Column("time", sa.Integer, nullable=False),
    )
    op.create_table(
        "steps",
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
