"""What can go wrong with packages of plugins.

PackageError
├── ArchiveRefused       a package breaks a rule; nothing of it was kept
├── SignatureRefused     a signature is missing, broken, or of nobody who is trusted
├── KeyUnusable          a file holds no key of the kind that is needed
├── PolicyInvalid        what an operator says about packages cannot be read
├── DownloadFailed       a package could not be fetched
├── NotAPlugin           a folder is no plugin, or not one that can be packed
├── PluginDisagrees      what a plugin's process serves is not what its manifest files say
├── PluginDoesNotRun     a plugin's process did not become ready
├── BuildCommandFailed   what makes a plugin's program failed
├── OwnTestsFailed       a plugin's own tests failed
├── InstallFailed        an installation could not be finished; what was there before is there
├── NotInstalled         there is no such plugin in the data folder
└── ScaffoldRefused      files for a plugin cannot be made there, or under that name
"""


class PackageError(Exception):
    """The root of what packages raise.

    Attributes:
        problem: What is wrong, naming the thing it is about.
        advice: What to do next; may be empty.
    """

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}: {advice}" if advice else problem)
        self.problem = problem
        self.advice = advice


class ArchiveRefused(PackageError):
    """A package breaks a rule; nothing of it was kept."""


class SignatureRefused(PackageError):
    """A signature is missing, broken, or of nobody who is trusted."""


class KeyUnusable(PackageError):
    """A file holds no key of the kind that is needed."""


class PolicyInvalid(PackageError):
    """What an operator says about packages cannot be read."""


class DownloadFailed(PackageError):
    """A package could not be fetched."""


class NotAPlugin(PackageError):
    """A folder is no plugin, or not one that can be packed."""


class PluginDisagrees(PackageError):
    """What a plugin's process serves is not what its manifest files say."""


class PluginDoesNotRun(PackageError):
    """A plugin's process did not become ready."""


class BuildCommandFailed(PackageError):
    """What makes a plugin's program failed."""


class OwnTestsFailed(PackageError):
    """A plugin's own tests failed."""


class InstallFailed(PackageError):
    """An installation could not be finished; what was there before is there."""


class NotInstalled(PackageError):
    """There is no such plugin in the data folder."""


class ScaffoldRefused(PackageError):
    """Files for a plugin cannot be made there, or under that name."""
