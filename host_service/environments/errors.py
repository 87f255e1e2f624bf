"""What can go wrong with the environments of Python plugins.

EnvironmentProblem
├── RequirementsInvalid  what a plugin asks for breaks rules; names file, line and rule
├── SdkUnavailable       this installation can give no wheel of runmesh-sdk
└── BuildFailed          an environment could not be built; carries the end of what was printed

That an environment is not there when a plugin starts is for the supervisor to tell:
`host_service.supervisor.errors.EnvironmentMissing`.
"""


class EnvironmentProblem(Exception):
    """The root of what environments raise; the text is for people, in one line or more."""


class RequirementsInvalid(EnvironmentProblem):
    """What a plugin asks for breaks a rule.

    Attributes:
        place: File and line, such as `requirements.txt:3`.
        rule: What must hold, and what was there.
    """

    def __init__(self, place: str, rule: str) -> None:
        super().__init__(f"{place}: {rule}")
        self.place = place
        self.rule = rule


class SdkUnavailable(EnvironmentProblem):
    """This installation can give no wheel of runmesh-sdk."""


class BuildFailed(EnvironmentProblem):
    """An environment could not be built.

    Attributes:
        problem: What failed, in one line.
        tail: The end of what was printed meanwhile; may be empty.
    """

    def __init__(self, problem: str, tail: str = "") -> None:
        super().__init__(f"{problem}; the last it wrote:\n{tail}" if tail else problem)
        self.problem = problem
        self.tail = tail
