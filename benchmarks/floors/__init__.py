"""The floors: the smallest honest programs that do what the mesh does.

They speak the same messages over the same transport on the same event loop, and decode every
message. They check nothing, store nothing and know no tokens. Each is a process of its own.
"""
