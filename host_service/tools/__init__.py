"""Tool servers: programs and addresses that offer tools by the Model Context Protocol.

::

    catalogue --> ToolServers --> ServerKeeper, one for each server that may be used
                                      |  starts, watches, tries again
                                      v
                                  Session over stdio or streamable HTTP --> tools, calls

A server costs nobody but itself: each has a keeper, a task, a session and a process of its own, and
no run and no start of the host ever waits for one that it does not call.
"""
