"""Agents, bindings and limits declared in a YAML file, so that a deployment can live in git.

The file has the fields of the admin contract by their names::

    agents:
      - id: support
        runner_id: plugin:acme/helpdesk/default
        timeout: 300s            # or timeout_seconds: 300
        follow_up: queue         # enum values by name, with or without their prefix
        config: {model: small}   # becomes config_json, numbers with all their digits
    bindings:
      - id: support-messages
        agent_id: support
        event_types: [message.received]
    limits:
      active_runs: 64

`runmesh apply -f` sends agents and bindings to a host; `runmesh up --config` also sets limits.
"""

from host_service.configuration.document import ConfigurationError, Fault
from host_service.configuration.file import Configuration, load_configuration, read_configuration

__all__ = [
    "Configuration",
    "ConfigurationError",
    "Fault",
    "load_configuration",
    "read_configuration",
]
