"""The local agent: a runner that lives on the host's models, tools, knowledge and history."""
