"""What accepted files say of their problems."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "file_tries", sa.Column("sha256", sa.String(64), primary_key=True), sa.Column("tries", sa.Text, nullable=False)
    )
