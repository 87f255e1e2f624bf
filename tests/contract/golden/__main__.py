"""Writes the golden messages anew: `python -m tests.contract.golden`."""

from tests.contract.golden.files import FOLDER, write_files
from tests.contract.golden.messages import golden_messages

write_files(golden_messages(), FOLDER)
