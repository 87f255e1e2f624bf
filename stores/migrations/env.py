"""Alembic's environment: it is given its connection, inside a transaction, by `migrate`."""

from alembic import context

from stores.sql.tables import is_described, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    include_name=is_described,
    # SQLite can change little of a table in place: its steps copy the table.
    render_as_batch=True,
)
context.run_migrations()
