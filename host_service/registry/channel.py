"""How a gRPC connection of the mesh is made: the options of every leg, in one place."""

import grpc
import grpc.aio

Options = tuple[tuple[str, int | str], ...]

#: The largest message on any leg. Ours are smaller, so that our rule answers first, with our error.
MESSAGE_LIMIT_BYTES = 16 * 1024 * 1024

_MESSAGE_LIMITS: Options = (
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
)

#: Options of every server of the mesh.
SERVER_OPTIONS: Options = (
    *_MESSAGE_LIMITS,
    # Two hosts on one port would each get some of the callers; the second must fail instead.
    ("grpc.so_reuseport", 0),
    # A client may ping while a model thinks for minutes: gRPC's own rule would end its connection.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # A caller or an attached runner that is gone without a word is noticed within ten seconds.
    # gRPC's own threads answer: a process that is busy does.
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def client_options(address: str, *, tls_name: str = "") -> Options:
    """The options of a channel to a gRPC target such as `unix:/path` or `127.0.0.1:50051`.

    Args:
        address: The target.
        tls_name: What the other side's certificate must be for; empty: what the target names.
    """
    options: Options = (
        *_MESSAGE_LIMITS,
        # A runner that was started again must serve within seconds, not after gRPC's two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # Channels to one address would share a connection, and each other's failures with it.
        ("grpc.use_local_subchannel_pool", 1),
        # A proxy is for the web; runners are dialled as told, and a name is looked up once.
        ("grpc.enable_http_proxy", 0),
        ("grpc.service_config_disable_resolution", 1),
    )
    if address.startswith("unix:"):
        # The default would be the socket's path, which many HTTP/2 servers refuse as an authority.
        options = (*options, ("grpc.default_authority", "localhost"))
    if tls_name:
        options = (*options, ("grpc.ssl_target_name_override", tls_name))
    return options


def open_channel(
    address: str, *, credentials: grpc.ChannelCredentials | None = None, tls_name: str = ""
) -> grpc.aio.Channel:
    """Opens a channel; it dials when it is first used.

    Args:
        address: A gRPC target.
        credentials: What it trusts and shows. None: it is not encrypted, which is for a unix
            socket, or an address of which the caller knows that it may be dialled so.
        tls_name: What the other side's certificate must be for; empty: what the target names.
    """
    options = client_options(address, tls_name=tls_name)
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)
