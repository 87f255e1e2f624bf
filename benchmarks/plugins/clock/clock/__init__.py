"""A plugin that tells the time."""
