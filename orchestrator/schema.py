"""Brings a database to the layout that this version works with, by Alembic's migrations."""

from sqlalchemy import Connection, Engine, inspect, text

from protocol.errors import ConfigError

_LOCK = 0x6D7573746572
"""PostgreSQL's advisory lock while a replica migrates: "muster" in ASCII."""
FIRST, NEWEST = "0001", "0003"


def migrate(engine: Engine) -> None:
    """Take every migration that the database lacks, in one transaction and one replica at a time.

    Raises ConfigError for a database of a newer version of muster.
    """
    if not _is_newest(engine):
        _upgrade(engine)


def _is_newest(engine: Engine) -> bool:
    with engine.execution_options(reading=True).connect() as connection:
        if not inspect(connection).has_table("alembic_version"):
            return False
        return connection.scalars(text("SELECT version_num FROM alembic_version")).all() == [NEWEST]


def _upgrade(engine: Engine) -> None:
    # Here: a replica that comes back has nothing to migrate, and half a second of the processor to spare for others.
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "orchestrator:migrations")
    known = [one.revision for one in ScriptDirectory.from_config(config).walk_revisions()]
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        config.attributes["connection"] = connection
        at = ", ".join(sorted(MigrationContext.configure(connection).get_current_heads())) or None
        if at is None and _is_older_than_migrations(connection):
            command.stamp(config, FIRST)
        elif at is not None and at not in known:
            what = f"the database has layout {at}, which this version of muster does not know"
            raise ConfigError(what, "use the newer version that made it, or another database")
        if at != known[0]:
            command.upgrade(config, "head")


def _is_older_than_migrations(connection: Connection) -> bool:
    """Whether a version without migrations made the tables, in the first layout."""
    return inspect(connection).has_table("meta")
