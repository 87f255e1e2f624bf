"""Why no connection came about, as far as TLS has to do with it.

gRPC says of every handshake that failed about the same. So the handshake is made once more by
Python's own TLS, which says what was wrong with it.
"""

import re
import socket
import ssl
from pathlib import Path

from host_service.certificates.files import SYSTEM, DialFiles
from host_service.cli.failures import CommandError

_SECONDS = 3.0
# After its own last word of the handshake a server still may refuse the client's certificate.
_ALERT_SECONDS = 1.0

# X509_V_ERR_... of OpenSSL's x509_vfy.h.
_NOT_YET_VALID = 9
_EXPIRED = 10
_WRONG_NAMES = (62, 64)
# OpenSSL's names of what a server says that hears no TLS, and of what it says against a client.
_NOT_TLS = re.compile(r"WRONG_VERSION|RECORD_LAYER|UNEXPECTED_MESSAGE|PACKET_LENGTH|HTTP_REQUEST")
_ALERT = re.compile(r"(?i)alert")


def tls_trouble(address: str, tls: DialFiles | None) -> CommandError | None:
    """Looks at a host that could not be reached.

    Args:
        address: Where it is, `HOST:PORT`.
        tls: What the connection trusted and showed; None: it had no TLS.

    Returns:
        What is wrong, and what to do; None: it is not about TLS.
    """
    host, separator, port = address.removeprefix("dns:///").rpartition(":")
    if not separator or not port.isdecimal():
        return None
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), _SECONDS) as connection:
            if tls is None:
                return _speaks_tls(connection, address)
            return _shake_hands(connection, address, tls.name or host, tls)
    except OSError:
        # Nobody listens there.
        return None


def _speaks_tls(connection: socket.socket, address: str) -> CommandError | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent: this only finds out what language is spoken.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        with context.wrap_socket(connection):
            pass
    except OSError:
        return None
    return CommandError(
        f"the host at {address} speaks TLS", "give --ca FILE: who signed its certificate"
    )


def _shake_hands(
    connection: socket.socket, address: str, name: str, tls: DialFiles
) -> CommandError | None:
    context = ssl.create_default_context(cafile=None if tls.ca == SYSTEM else str(tls.ca))
    context.set_alpn_protocols(["h2"])
    if tls.certificate is not None and tls.key is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    try:
        secured = context.wrap_socket(connection, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error, address, name, tls.ca)
    except ssl.SSLError as error:
        if _NOT_TLS.search(error.reason or ""):
            return CommandError(f"the host at {address} speaks no TLS", "leave --ca and https://")
        return _refused(address, shown=tls.certificate) if _ALERT.search(str(error)) else None
    with secured:
        return None if _is_taken(secured) else _refused(address, shown=tls.certificate)


def _is_taken(secured: ssl.SSLSocket) -> bool:
    """Whether the server goes on after the handshake: one that refuses a client hangs up.

    A gRPC server speaks first, and one that says nothing for a while has not refused anything.
    """
    secured.settimeout(_ALERT_SECONDS)
    try:
        return bool(secured.recv(1))
    except TimeoutError:
        return True
    except OSError:
        return False


def _untrusted(
    error: ssl.SSLCertVerificationError, address: str, name: str, ca: Path
) -> CommandError:
    whose = f"the certificate of the host at {address}"
    if error.verify_code == _EXPIRED:
        return CommandError(f"{whose} has expired", "it is to be renewed there")
    if error.verify_code == _NOT_YET_VALID:
        return CommandError(f"{whose} is not valid yet", "check the clocks of both machines")
    if error.verify_code in _WRONG_NAMES:
        return CommandError(
            f"{whose} is not for {name}",
            "use a name that it is for, or have it issued for this one with --host",
        )
    signer = "an authority that this machine trusts" if ca == SYSTEM else f"an authority in {ca}"
    return CommandError(
        f"{whose} is not signed by {signer} ({error.verify_message})",
        "give --ca the file of the authority of that host",
    )


def _refused(address: str, *, shown: Path | None) -> CommandError:
    if shown is None:
        return CommandError(
            f"the host at {address} asks for a client certificate",
            "give --cert and --key; 'runmesh certs issue --client NAME' makes one there",
        )
    return CommandError(
        f"the host at {address} does not take the certificate {shown}",
        "show one that its --tls-client-ca signed, for clients, and that has not expired",
    )
