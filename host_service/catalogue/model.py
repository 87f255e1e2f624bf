"""A model: where it is served, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from host_service.catalogue.documents import read_document, write_document
from stores.records import CatalogueItem, CatalogueKind

CHAT = "chat"


class Origin(StrEnum):
    """Where a model comes from."""

    CATALOGUE = "catalogue"
    ENVIRONMENT = "environment"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model that agents may be given. Its API key is the secret `api_key` of its item.

    Attributes:
        id: What agents and calls name it by.
        kind: `chat`, `rerank` or `embedding`.
        provider: Who serves it, such as `openai`.
        model_name: What the provider calls it.
        name: A name to show.
        base_url: Where it is served; empty: where the provider's own models are.
        context_window_tokens: Tokens that fit into one call; None: unknown.
        abilities: Of `vision`, `tool_calling`, `reasoning`, `json`.
        max_concurrency: How many calls may be under way at once; 0: any number.
        requests_per_minute: How many calls may begin in a minute; 0: any number.
        options_json: Arguments of every call, a JSON object.
        enabled: Whether it may be used.
        revision: Counts the changes; 0 before it was stored.
        origin: Where it comes from; only what comes from the catalogue is stored.
    """

    KIND: ClassVar[CatalogueKind] = CatalogueKind.MODEL
    API_KEY: ClassVar[str] = "api_key"

    id: str
    kind: str
    provider: str
    model_name: str
    name: str = ""
    base_url: str = ""
    context_window_tokens: int | None = None
    abilities: tuple[str, ...] = ()
    max_concurrency: int = 0
    requests_per_minute: int = 0
    options_json: str = "{}"
    enabled: bool = True
    revision: int = field(default=0, compare=False)
    origin: Origin = field(default=Origin.CATALOGUE, compare=False)

    def to_document(self) -> str:
        """Return the JSON text that is stored."""
        return write_document(self)

    @classmethod
    def from_item(cls, item: CatalogueItem) -> Model:
        """Return the model that an item is."""
        return cls(**read_document(cls, item))
