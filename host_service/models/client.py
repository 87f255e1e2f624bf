"""One provider, through the official client: its transport and its authentication.

What it would do beside that is done here instead: it would try again without asking whether the
answer has begun, read an error's body whole however large it is, follow redirects with the key, and
take keys and organizations from the environment, which belong to another provider.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from host_service.limits import Limits
from host_service.models.endpoints import Address
from host_service.models.failures import Kind, failed, failure_of_body
from host_service.models.retries import retry_after

if TYPE_CHECKING:
    import httpx2

_FIRST_ERROR = 300
_CUSTOM_HEADERS = "OPENAI_CUSTOM_HEADERS"


def load_client() -> None:
    """Imports the official client ahead of the first call; to be done in a thread."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # noqa: F401


class ProviderClient:
    """Sends requests to one base URL with one key.

    To make one imports the official client, which takes half a second the first time: make it in a
    thread.

    Args:
        address: Where the provider is.
        limits: How long it may take, and how much of an error is read.

    Raises:
        ProviderFailure: The key is none that can be sent, or the base URL is none.
    """

    def __init__(self, address: Address, *, limits: Limits) -> None:
        import httpx2
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Omit

        # At debug level they write down what they send.
        for name in ("openai", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._limits = limits
        key = address.api_key.reveal() if address.api_key is not None else ""
        if not all("!" <= character <= "~" for character in key):
            raise failed(Kind.AUTHENTICATION, "the stored API key has characters that no key has")
        silence = limits.model_silence_seconds
        headers: dict[str, Any] = dict.fromkeys(_ambient_headers(os.environ), Omit())
        headers |= {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        # Without a key, each request says that it has none: the official client insists.
        self._headers: dict[str, Any] = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            # What is packed arrives in blocks, and not as it is said.
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {key}" if key else Omit(),
        }
        try:
            self._client = AsyncOpenAI(
                api_key=key or "none",
                admin_api_key="",
                organization="",
                project="",
                webhook_secret="",
                base_url=address.base_url,
                max_retries=0,
                default_headers=headers,
                http_client=DefaultAsyncHttpxClient(
                    timeout=httpx2.Timeout(
                        silence, connect=limits.model_connect_seconds, pool=None
                    ),
                    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
                    follow_redirects=False,
                    # A proxy of the environment leads to other machines, not to this one.
                    trust_env=not _is_loopback(address.base_url),
                    event_hooks={"response": [self._refuse_errors]},
                ),
            )
        except (httpx2.InvalidURL, ValueError):
            raise failed(Kind.NOT_FOUND, "the base URL is none") from None

    @asynccontextmanager
    async def post(self, path: str, body: bytes) -> AsyncIterator[httpx2.Response]:
        """Send a request; give the answer, whose body is still to be read.

        Leaving the context before that closes the connection.

        Raises:
            ProviderFailure: There is no answer, or it is an error.
        """
        response = await self._send(path, body)
        try:
            yield response
        finally:
            await response.aclose()

    @asynccontextmanager
    async def get(self, path: str) -> AsyncIterator[httpx2.Response]:
        """Ask for something; otherwise as `post`.

        Raises:
            ProviderFailure: As `post`.
        """
        response = await self._send(path, None)
        try:
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def _send(self, path: str, body: bytes | None) -> httpx2.Response:
        import httpx2
        from openai import APIConnectionError, APITimeoutError, AsyncStream

        try:
            as_it_comes: dict[str, Any] = {
                "cast_to": httpx2.Response,
                "stream": True,
                "stream_cls": AsyncStream[Any],
                "options": {"headers": self._headers},
            }
            if body is None:
                answer: Any = await self._client.get(path, **as_it_comes)
            else:
                answer = await self._client.post(path, content=body, **as_it_comes)
            return cast("httpx2.Response", answer)
        except APITimeoutError as error:
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                seconds = self._limits.model_connect_seconds
                raise failed(Kind.UNAVAILABLE, f"no connection within {seconds:g} s") from None
            raise self.silent() from None
        except APIConnectionError as error:
            raise failed(Kind.UNAVAILABLE, _why(error.__cause__)) from None

    async def chunks(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body of an answer as it comes.

        Raises:
            ProviderFailure: It breaks off, or nothing comes for too long.
        """
        import anyio
        import httpx2

        try:
            async for chunk in response.aiter_bytes():
                yield chunk
        except httpx2.TimeoutException:
            raise self.silent() from None
        # Not all that ends a connection under TLS is known to the client as such.
        except (httpx2.RequestError, httpx2.StreamError, OSError, anyio.EndOfStream) as error:
            raise failed(Kind.CUT, _why(error)) from None

    async def whole(self, response: httpx2.Response) -> str:
        """Return the whole body of an answer; bytes that are no UTF-8 become U+FFFD.

        Raises:
            ProviderFailure: As `chunks`, or it is too large.
        """
        most, data = self._limits.model_response_bytes, bytearray()
        async for chunk in self.chunks(response):
            data += chunk
            if len(data) > most:
                raise failed(Kind.BAD_ANSWER, f"more than {most} bytes")
        return data.decode("utf-8", "replace")

    def silent(self) -> Exception:
        """Return the failure that nothing came for too long."""
        return failed(Kind.TIMEOUT, f"nothing for {self._limits.model_silence_seconds:g} s")

    async def _refuse_errors(self, response: httpx2.Response) -> None:
        """Look at an answer before the official client does."""
        if response.status_code < _FIRST_ERROR:
            return
        most, data = self._limits.model_error_bytes, bytearray()
        async for chunk in self.chunks(response):
            data += chunk
            if len(data) >= most:
                break
        raise failure_of_body(
            data[:most].decode("utf-8", "replace"),
            status=response.status_code,
            retry_after_seconds=retry_after(response.headers),
        )


def _why(error: BaseException | None) -> str:
    """Return what went wrong with a connection; a request that cannot be sent may hold the key."""
    import httpx2

    if error is None or isinstance(error, httpx2.LocalProtocolError):
        return "no connection"
    return str(error) or type(error).__name__


def _ambient_headers(environment: Mapping[str, str]) -> list[str]:
    """Return the names of headers that the official client takes from the environment."""
    lines = environment.get(_CUSTOM_HEADERS, "").split("\n")
    return [line.partition(":")[0].strip() for line in lines if ":" in line]


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
