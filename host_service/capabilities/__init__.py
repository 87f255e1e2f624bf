"""What HostAPI offers to runs: one noun a file, behind one gate.

The way of a call::

    tokens ──> Gate: rate, permission, fields, scope, size, deadline ──> a capability's method
                 └── one audit row, whatever becomes of it

A capability's methods take the access of the run and the request, and return the response. They
look up what the request names within what the run was given: what is not among it is `NotFound`,
whether it exists or not.
"""
