"""A plugin that calls."""
