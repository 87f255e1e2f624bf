"""Migrations of the schema, by Alembic, on SQLite and PostgreSQL.

A version is a module of `versions`. It describes the schema as it was then, by itself: it never
imports the tables of today.
"""

# The newest revision, so that a database that has it is opened without importing Alembic. A test
# holds it together with `versions`.
HEAD = "0010"
