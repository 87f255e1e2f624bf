"""The part of the ZIP format that packages use, and no more of it.

PKWARE's APPNOTE.TXT, sections 4.3.7, 4.3.12 and 4.3.16: local headers, central headers, and the end
record. Left out are ZIP64, encryption, data descriptors, extra fields, comments and several disks:
each of them is a way for two readers to see two archives in one file.
"""

import stat
import struct
from dataclasses import dataclass

LOCAL = struct.Struct("<4s5H3L2H")
CENTRAL = struct.Struct("<4s6H3L5H2L")
END = struct.Struct("<4s4H2LH")

LOCAL_MARK = b"PK\x03\x04"
CENTRAL_MARK = b"PK\x01\x02"
END_MARK = b"PK\x05\x06"
ZIP64_LOCATOR_MARK = b"PK\x06\x07"
ZIP64_LOCATOR_BYTES = 20

STORED, DEFLATED = 0, 8
UTF8_FLAG = 0x0800
ENCRYPTED_FLAGS = 0x0001 | 0x0040 | 0x2000
DESCRIPTOR_FLAG = 0x0008
UNIX = 3
# 2.0: what deflated entries need.
VERSION = 20
# 1 January 1980, midnight: the format's earliest, and the same in every package.
TIME, DATE = 0, (1 << 5) | 1

FILE_MODE = stat.S_IFREG | 0o644
PROGRAM_MODE = stat.S_IFREG | 0o755
LINK_MODE = stat.S_IFLNK | 0o777
#: What an entry may be, as a word.
KINDS = {FILE_MODE: "file", PROGRAM_MODE: "program", LINK_MODE: "link"}
MODES = {kind: mode for mode, kind in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an archive.

    Attributes:
        name: Its path.
        kind: `file`, `program` or `link`.
        method: `STORED` or `DEFLATED`.
        crc: CRC-32 of its content.
        packed_bytes: Its size in the archive.
        size_bytes: The size of its content.
        offset: Where its local header is.
    """

    name: str
    kind: str
    method: int
    crc: int
    packed_bytes: int
    size_bytes: int
    offset: int

    @property
    def flags(self) -> int:
        """Its general purpose flags."""
        return 0 if self.name.isascii() else UTF8_FLAG

    @property
    def encoded_name(self) -> bytes:
        """Its name as it stands in the archive."""
        return self.name.encode()

    @property
    def content_offset(self) -> int:
        """Where its content is."""
        return self.offset + LOCAL.size + len(self.encoded_name)

    def local_header(self) -> bytes:
        """What stands before its content."""
        name = self.encoded_name
        return (
            LOCAL.pack(
                LOCAL_MARK, VERSION, self.flags, self.method, TIME, DATE, self.crc,
                self.packed_bytes, self.size_bytes, len(name), 0,
            )
            + name
        )  # fmt: skip

    def central_header(self) -> bytes:
        """What stands for it in the directory at the end."""
        name = self.encoded_name
        return (
            CENTRAL.pack(
                CENTRAL_MARK, UNIX << 8 | VERSION, VERSION, self.flags, self.method, TIME, DATE,
                self.crc, self.packed_bytes, self.size_bytes, len(name), 0, 0, 0, 0,
                MODES[self.kind] << 16, self.offset,
            )
            + name
        )  # fmt: skip
