"""What calls to models need is imported with the first of them, and not when the host starts."""

import subprocess
import sys


def test_host_starts_without_the_official_client() -> None:
    code = (
        "import sys, host_service.server\n"
        "print(sorted({'openai', 'httpx2'} & sys.modules.keys()))\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert printed.stdout.decode().strip() == "[]"
