"""The host that stands in for a real one in tests; `runner_sdk.testing` is its face.

Everything is in memory and belongs to one conversation, one user and one agent. What is refused,
and why, is as the contract says.
"""
