"""Agents and bindings: what they are, which binding wins, and how they change."""
