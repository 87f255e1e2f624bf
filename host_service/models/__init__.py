"""Calls to models that speak the OpenAI protocol, wherever they are served.

A call takes its turn (how many at once, how many a minute), is sent by the official client, and is
tried again only while nothing of the answer has come. What comes back is read defensively: `sse`
makes records of bytes, `assembly` makes an answer of records, `failures` says what went wrong.
"""
