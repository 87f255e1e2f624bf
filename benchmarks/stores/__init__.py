"""The stores alone, on both engines, against the smallest honest programs on the same database."""

from benchmarks.stores.scenario import measure

__all__ = ["measure"]
