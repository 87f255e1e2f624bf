"""What can go wrong with tool servers and their tools.

ToolError
├── ServerFailed      a server cannot be used now; the text says why
├── SessionLost       a server no longer knows the session: with another one it may work
├── ToolUnknown       a server has no such tool
├── ParametersRefused a server takes other parameters
├── CallFailed        a server answered a call with an error of the protocol, or with nonsense
└── CallTimedOut      a call was not answered in time
"""


class ToolError(Exception):
    """The root of what tool servers raise. Its text has no secret in it."""


class ServerFailed(ToolError):
    """A server could not be started, ended, or does not answer as it should.

    Attributes:
        last_words: The last that it wrote to its standard error output, or empty.
    """

    def __init__(self, trouble: str, *, last_words: str = "") -> None:
        super().__init__(trouble)
        self.last_words = last_words


class SessionLost(ToolError):
    """A server no longer knows the session, as after its restart."""


class ToolUnknown(ToolError):
    """A server has no such tool."""


class ParametersRefused(ToolError):
    """A server takes other parameters; the text is what it says."""


class CallFailed(ToolError):
    """A server answered a call with an error of the protocol, or with what is no answer."""


class CallTimedOut(ToolError):
    """A call was not answered in time."""
