"""The stores on SQLite and PostgreSQL.

What flows where::

    caller (event loop)                writer thread                     reader threads
    store.write(record)
      encode the rows
      journal.submit(work) --queue-->  BEGIN, work, work, ..., COMMIT
      <-- future, in batches --------
    await store.read(id) --queue------------------------------------->   SELECT
      <-- future ----------------------------------------------------    decode the rows

`tables` has the schema, `dialect` every place where the two engines differ, `rows` the way
between records and rows. Statements are SQLAlchemy Core, compiled once and run straight on the
driver's cursor (`connection`): on the hot path Core's own execution costs several times what
SQLite needs for the statement.
"""
