"""The host's edge: what may come in, checked from one set of rules.

`rules` is the table, `check` applies it to a message and reports every fault at once, `json_text`
knows what a `_json` field may hold, `repair` mends a runner's results instead of refusing them,
`digest` recognises a redelivered event, `adapter_extra` filters what an adapter adds. Protobuf
messages are the input; gRPC is not known here.
"""

from host_service.validation.check import Validator, find_violations
from host_service.validation.violation import Violation

__all__ = ["Validator", "Violation", "find_violations"]
