"""Recognises the files of caches by their paths."""

from __future__ import annotations

import os
import re

DOWNLOADS = (  # what tools keep below .cache/ and can download or make again
    rb"(?:pip|uv|torch|torch_extensions|triton|matplotlib|conda|mamba|numba|nvidia|fontconfig|pre-commit|pypoetry"
    rb"|vllm|flashinfer|deep_gemm|jax|tvm|ccache|go-build|yarn|npm|mesa_shader_cache[^/]*|motd\.[^/]*)(?:/.*|)"
    rb"|huggingface/(?:hub/(?:\.locks/.*|version\.txt|CACHEDIR\.TAG|(?:models|datasets|spaces)--[^/]+"
    rb"/(?:blobs|refs|snapshots|\.no_exist)/.*)|datasets/.*|modules/.*|xet/.*|assets/.*|token|stored_tokens)"
)
BYTECODE = re.compile(rb".*/__pycache__/[^/]+\.pyc(?:\.\d+)?|.*\.pyc").fullmatch
CACHES = (
    re.compile(rb".*/\.cache/(?:" + DOWNLOADS + rb")"),
    # Where HF_HOME, HF_HUB_CACHE and the like name another directory, or a compiler uses a temporary one.
    re.compile(
        rb".*/(?:models|datasets|spaces)--[^/]+--[^/]+/(?:blobs|refs|snapshots|\.no_exist)/.*"
        rb"|(?:/var)?/tmp/torchinductor_[^/]+/.*"
    ),
    re.compile(
        rb".*/\.(?:nv/ComputeCache|triton/(?:cache|dump|llvm|nvidia|pybind11|json)|pytest_cache/(?:v|d|README\.md|CACHEDIR\.TAG"
        rb"|\.gitignore)|mypy_cache/[\d.]+|ruff_cache/[\d.]+)(?:/.*|)"
    ),
)
SAVED_NOTEBOOK = re.compile(
    rb"(.*/)\.ipynb_checkpoints/([^/]+)-checkpoint(\.[^/]+)", re.DOTALL
).fullmatch
ENVIRONMENT = re.compile(
    rb"(.*/(?:\.venv|venv))/(?:(?:lib|lib64|bin|include|share|etc|scratch|clone)/.*|[^/]+)"
).fullmatch
MODULES = re.compile(rb"(.*/node_modules)/(?:\.[^/]+(?:/.*)?|((?:@[^/]+/)?[^/]+)/.*)").fullmatch


def is_cache(path: bytes) -> bool:
    """Whether the path is that of a cached file, or of a file in a Python environment or a Node package that exists."""
    if any(shape.fullmatch(path) for shape in CACHES):
        return True
    if BYTECODE(path) and is_bytecode(path):
        return True
    notebook = SAVED_NOTEBOOK(path)
    if notebook:  # Jupyter's second copy. If the notebook is gone, it is the only copy.
        return os.path.isfile(b"".join(notebook.groups()))
    environment = ENVIRONMENT(path)
    if environment:
        return os.path.isfile(os.path.join(environment.group(1), b"pyvenv.cfg"))
    modules = MODULES(path)
    if modules:
        package = modules.group(2)
        return package is None or os.path.isfile(
            os.path.join(modules.group(1), package, b"package.json")
        )
    return False


def is_bytecode(path: bytes) -> bool:
    """Whether the file begins as Python's compiled code does. Anything may be written under such a name."""
    try:
        with open(path, "rb") as file:
            return file.read(4)[2:] == b"\r\n"
    except OSError:
        return True  # it cannot be read, so it is judged by its name
