"""Actions that runs ask for: judged, recorded, approved, executed.

What flows where::

    RequestAction, action_requested ──> ActionDesk: what is missing? ──> recorded (durable)
                                              |                             |
       a person, by AdminService ── approve ──┤            nothing missing: executing (durable)
                                              v                             |
                                          executor  <───────────────────────┘
                                              |
                                          outcome ──> recorded, event log, audit

An action executes where the manifest declares it, agent and workspace grant it, this host has an
executor for it, and the approval policy is satisfied. That it executes is durable before anything
is done, so that it never executes twice; an execution is a task of its own, which neither the end
of its run nor a caller who leaves takes along.
"""
