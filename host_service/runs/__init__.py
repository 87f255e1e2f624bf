"""Runs: from an accepted event to a stored end.

The way of an event::

    intake        validate, normalize, key and digest
    agents        which binding, which agent
    orchestrator  accept in one transaction, hand to a run of its own
    entry         known already? else a turn in its session, a place, an instance
    run           wait, freeze rights, call the runner
    checker       check and number each result
    log           deliver to readers, keep what is durable
"""
