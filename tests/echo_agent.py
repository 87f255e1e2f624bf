"""The default agent of hosts in tests: it says what it was told, where a first start has more.

What tests say comes back to the letter, and costs nothing; what a first start has for an agent is
tested by itself.
"""

import re

RUNNER = "plugin:runmesh/echo/default"
AGENTS = f"agents:\n- {{id: default, runner_id: {RUNNER!r}}}\n"

_SECTION = re.compile(r"^agents:\n", re.MULTILINE)
_DEFAULT = re.compile(r"\bid: default\b")


def with_echo(config: str) -> str:
    """Returns a configuration whose agent `default` echoes, unless it has one of its own."""
    if _DEFAULT.search(config):
        return config
    if _SECTION.search(config):
        return _SECTION.sub(lambda _: AGENTS, config, count=1)
    return config + AGENTS
