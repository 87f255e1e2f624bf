"""Models, tool servers and knowledge bases: what operators keep for agents to use.

Each is stored as one JSON document with exactly its fields, defaults filled in, so that an
operator's choice stays what it was when a default changes. Secrets are not among them: documents
have their names, `stores.secrets` has the rest.
"""
