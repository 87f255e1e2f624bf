"""Agents, models, keys and so on declared in a YAML file, so that a deployment can live in git.

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
    models:
      - id: small
        kind: chat
        provider: openai
        model_name: gpt-5-mini
        api_key: {env: OPENAI_API_KEY}     # a secret is never in the file
    tool_servers:
      - id: files
        command: {command: mcp-files, args: [/data], env: {LOG_LEVEL: debug}}
    knowledge_bases:
      - id: handbook
    policies:
      - workspace_id: acme
        allowance: {models: [small]}       # a choice is a list
    plugins:
      - plugin_id: acme/helpdesk
        settings: {url: "https://desk.example"}
        secrets: {token: {env: DESK_TOKEN}}
    keys:
      - name: ci
        role: ingress
        secret: {env: CI_KEY}
    webhooks:
      - action: ticket.create              # done by whoever answers there
        url: https://desk.example/hooks/runmesh
        secret: {env: DESK_SECRET}
    limits:
      active_runs: 64

`runmesh apply -f` sends all of it to a host but the limits, which `runmesh up --config` sets.
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
