"""The command line `runmesh`: one file a command group, and what the groups share.

Commands are quick to start: this package imports gRPC, the contract, Rich's tables and the host
itself only inside the commands that need them, which is why many imports here are late.

Exit statuses: 0 done, 1 failed, 2 used wrongly, 128 and the signal's number when a signal ended it
(130 for Ctrl-C, 141 when the reader of its output went away).
"""
