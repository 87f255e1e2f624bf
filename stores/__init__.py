"""The stores of runmesh: what is kept, with which guarantees, on SQLite and PostgreSQL.

`open_stores` gives all of them. They take and return the plain records of `stores.records`, raise
the errors of `stores.errors`, and know nothing of gRPC, of runners or of the host. Each store is
a protocol with its promises in a module of its own; `stores.sql` implements them.
"""

from stores.opened import Stores
from stores.opening import open_stores

__all__ = ["Stores", "open_stores"]
