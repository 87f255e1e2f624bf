"""The rehearsal model: what answers where no real model is configured.

It is a server of the OpenAI protocol on loopback, which the host starts when it is first called, so
that a rehearsed run takes every step of a real one. No language model is behind it: it repeats what
it was asked, quotes the passages that it was given, and calls the tool whose description fits. The
same request gets the same answer, always.

::

    server.py      started when it is first called, ended with the host
    application.py HTTP: the key, the routes, the stream, what a script does to it
    request.py     what was asked, read from the body
    answering.py   what is said, or which tool is called
    choosing.py    the tool that a message asks for
    arguments.py   its arguments, out of the message
    passages.py    retrieved passages in a prompt, and what of them answers
    script.py      a file of rules that answer instead
    wording.py     terms of texts, as the search of the stores has them
    vectors.py     embeddings and orders of documents, out of terms
    replies.py     the protocol's bodies and chunks
"""
