"""Prints whether `torch.load` builds the tensors of a checkpoint, with weights only and mapped from the disk."""

import json
import pickle
import sys

import torch

_SAFE_SINCE = (2, 6)
"""The first safe version. In earlier ones, a file could run code in spite of `weights_only=True` (CVE-2025-32434)."""


def load(path: str) -> dict[str, list[str]]:
    """Load the file with weights only. Returns what that proves, in the form that `subprocesses.read` expects."""
    version = torch.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _SAFE_SINCE:
        return {
            "not_proved": [f"not loaded: torch {version} is older than 2.6 and unsafe to load with"]
        }
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except MemoryError:
        return {"stopped": ["it takes more memory than is allowed here"]}
    except RuntimeError as error:
        if "alloc" in str(error) or "memory" in str(error):
            return {"stopped": [_first_line(error)]}
        return {"problems": [_first_line(error)]}
    except (pickle.UnpicklingError, AttributeError, KeyError, TypeError, ValueError) as error:
        return {
            "not_proved": [
                f"torch {version} would not load it with weights only: {_first_line(error)}"
            ]
        }
    return {"proved": [f"torch {version} loads it, weights only"]}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


if __name__ == "__main__":
    print(json.dumps(load(sys.argv[1])))  # noqa: T201
