"""Certificates: read and checked, read again when they change, and issued for development.

::

    files       which files somebody named
    identity    reads them, and says what is wrong with them
    watched     reads them again when they change
    serving     what listeners show, for gRPC and for HTTP
    dialling    what connections show and trust
    authority   a private authority for development
"""
