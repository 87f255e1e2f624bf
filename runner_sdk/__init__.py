"""The Python SDK for runner authors: write an agent, serve it, test it."""

__version__ = "0.1.0"
