"""What `runmesh dev` does: a plugin in its author's hands, attached to a host that runs.

workbench      the loop: try what is there, until it changes
source_files   which files make up a plugin
watch          waits for changes of them
recipes        what a process of the plugin is started with
process        the process, and the one that stands by for the next change
relay          attaches plugins that only listen
host_side      what is asked of the host
"""

from host_service.development.host_side import HostSide
from host_service.development.recipes import Workplace, way_to_host
from host_service.development.source_files import SourceFiles
from host_service.development.workbench import Workbench

__all__ = ["HostSide", "SourceFiles", "Workbench", "Workplace", "way_to_host"]
