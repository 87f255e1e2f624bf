"""The agent host: takes events in, runs agents under frozen rights, stores and delivers results."""

__version__ = "0.1.0"
