"""What an operator demands of packages: `packages.yaml` in the data folder.

::

    require_signature: true          # default: false
    trusted_keys: /etc/runmesh/keys  # default: trusted-keys/ in the data folder
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

from host_service.packages.errors import PolicyInvalid, SignatureRefused
from host_service.packages.package import Package
from host_service.packages.signing import TrustedKeys

POLICY_FILE = "packages.yaml"
KEYS_FOLDER = "trusted-keys"


@dataclass(frozen=True, slots=True)
class PackagePolicy:
    """Which packages may be installed.

    Attributes:
        trusted_keys: The folder of the keys whose signatures count.
        require_signature: Whether a package needs one of them.
    """

    trusted_keys: Path
    require_signature: bool = False

    @classmethod
    def read(cls, data_folder: Path) -> "PackagePolicy":
        """Reads the policy of a data folder; without a file, no signature is needed.

        Raises:
            PolicyInvalid: The file cannot be read, or says something unknown: then nothing is
                installed, since it may have said that a signature is needed.
        """
        path = data_folder / POLICY_FILE
        try:
            told = yaml.safe_load(path.read_text("utf-8")) or {}
        except FileNotFoundError:
            return cls(data_folder / KEYS_FOLDER)
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise PolicyInvalid(f"{path} cannot be read: {' '.join(str(error).split())}") from error
        if not isinstance(told, dict) or not told.keys() <= {"require_signature", "trusted_keys"}:
            raise PolicyInvalid(f"{path} may have require_signature and trusted_keys, and no more")
        required, keys = told.get("require_signature", False), told.get("trusted_keys", KEYS_FOLDER)
        if not isinstance(required, bool):
            raise PolicyInvalid(f"{path}: require_signature must be true or false")
        if not isinstance(keys, str) or not keys:
            raise PolicyInvalid(f"{path}: trusted_keys must be the path of a folder")
        return cls(data_folder / Path(keys).expanduser(), required)

    def signer(self, package: Package) -> str:
        """Whose trusted signature a package has; empty: none, and none is needed.

        Raises:
            SignatureRefused: It has none and needs one, or has one of something else.
            KeyUnusable: A trusted key cannot be read.
        """
        keys = TrustedKeys.read(self.trusted_keys)
        signer = keys.signer(package.signature, package.contents_text)
        if signer or not self.require_signature:
            return signer
        has = "is signed by nobody" if package.signature is None else "is signed by an unknown key"
        raise SignatureRefused(
            f"{package.path.name} {has}, and {POLICY_FILE} demands a trusted signature",
            f"have it signed by a key whose *.pub is in {self.trusted_keys}",
        )
