"""Knowledge bases: documents are read, cut into passages, stored, and found again.

A document comes as bytes. A child process reads it and cuts it (`reading`), the store keeps its
passages, and a model makes their vectors (`ingest`). `retrieval` finds passages by their words and
by their vectors.
"""
