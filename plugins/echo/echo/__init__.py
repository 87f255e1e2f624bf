"""The echo plugin: the smallest honest runner, and the one that can be told to misbehave."""
