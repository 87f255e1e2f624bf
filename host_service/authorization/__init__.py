"""Who may do what: API keys of callers, tokens of runs, and the frozen rights of one run."""
