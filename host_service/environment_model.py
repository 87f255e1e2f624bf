"""The model that the environment of a host names, as the official clients read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: Where the key is, where the model is served, and what it is called there.
API_KEY, BASE_URL, MODEL_NAME = "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"

_DEFAULT_BASE_URL = "https://api.openai.com/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentModel:
    """A model of the OpenAI protocol that variables name. Its key is stored nowhere.

    Attributes:
        base_url: Where it is served.
        api_key: What it is called with; empty: nothing.
        model_name: What it is called there; empty: nobody said.
        is_elsewhere: Whether the variables say where it is served.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    model_name: str = ""
    is_elsewhere: bool = False

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> EnvironmentModel | None:
        """Return the model that variables name; None where they name neither a key nor a place.

        Raises:
            ValueError: They name a place that is no address.
        """
        key, base_url, name = (
            environment.get(each, "").strip() for each in (API_KEY, BASE_URL, MODEL_NAME)
        )
        if not key and not base_url:
            return None
        if base_url:
            _check(base_url)
        return cls(
            base_url=base_url.rstrip("/") or _DEFAULT_BASE_URL,
            api_key=key,
            model_name=name,
            is_elsewhere=bool(base_url),
        )


def _check(base_url: str) -> None:
    try:
        parts = urlsplit(base_url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{BASE_URL} must be an address that begins with https:// or http://")
