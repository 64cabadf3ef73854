"""The table of what belongs together: which files of a directory say what else must be there, and where that is known from.

To know another layout, add a row to one of the tables. The code that reads them is in `file_sets.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpu_tenant.artifacts.formats.bounded_file import Broken, Source, Unread
from gpu_tenant.artifacts.formats.onnx import files_elsewhere

_MOST_BYTES = 64 << 20
_LONGEST_POINTER_BYTES = 512


class NumberedName(NamedTuple):
    """Names that say how many parts there are: `at` of `of`. The parts are counted from 0 or from 1."""

    name: str
    source: str


class CountedName(NamedTuple):
    """Names that number their parts from 0 on, and do not say how many there are. Between them, none may be missing."""

    name: str
    source: str


class PartsList(NamedTuple):
    """A file that lists others, by their paths below its own directory. `*` stands for any letters of a name."""

    seen: str
    parts: Callable[[Path], Iterable[str]]
    source: str
    beside: str = ""
    """The list counts only if a name beside it matches this as well."""
    directory: str = ""
    """The list counts only in a directory whose path matches this."""


class Companion(NamedTuple):
    """If a directory has `seen`, it must have one of `due` as well. The first of them is named if none is there."""

    seen: str
    due: tuple[str, ...]
    """Names with `*` for any letters. `{stem}` is what the group of that name in `seen` has matched."""
    source: str
    beside: str = ""
    """This counts only if another name of the directory matches this as well."""
    directory: str = ""
    """This counts only in a directory whose path matches this."""
    deep: bool = False
    """Whether one of `due` may also lie in a directory below."""


NUMBERED = (
    NumberedName(
        r"(?P<head>.*?)(?P<at>\d{4,6})(?P<by>[-_]of[-_])(?P<of>\d{4,6})(?P<tail>(?:\.\w+)*)",
        "transformers `save_pretrained`, llama.cpp `gguf-split`, TensorFlow `ShardedFilename`",
    ),
    NumberedName(
        r"(?P<head>(?:.*[-_.])?(?:shard|part|rank|split|piece|tp|pp)[-_.]?)(?P<at>\d{1,3})"
        r"(?P<by>[-_]?of[-_]?)(?P<of>\d{1,3})(?P<tail>(?:\.\w+)*)",
        "file names by hand, such as shard-1-of-4.pt",
    ),
)
NO_PARTS = re.compile(r"(?i)(?:^|.*[-_.])(?:epoch|step|iter|iteration|fold|run|seed|trial|round)s?")
"""What stands before a number that counts the progress of a job, and not the parts of a set."""

COUNTED = (
    CountedName(
        r"(?P<head>\w*zero_pp_rank_)(?P<at>\d+)(?P<tail>_mp_rank_\d+_(?:optim|model)_states\.pt)",
        "DeepSpeed `engine._get_zero_ckpt_name`",
    ),
    CountedName(
        r"(?P<head>mp_rank_)(?P<at>\d+)(?P<tail>_model_states\.pt|(?:_\d{3})?)",
        "DeepSpeed `engine._get_ckpt_name`; Megatron `get_checkpoint_name`",
    ),
    CountedName(
        r"(?P<head>rng_state_)(?P<at>\d+)(?P<tail>\.pth)", "transformers `_save_rng_state`"
    ),
    CountedName(
        r"(?P<head>random_states_)(?P<at>\d+)(?P<tail>\.pkl)", "accelerate `RNG_STATE_NAME`"
    ),
    CountedName(
        r"(?P<head>(?:pytorch_model|optimizer)_fsdp_rank)(?P<at>\d+)(?P<tail>\.bin)",
        "accelerate `save_fsdp_model`, LOCAL_STATE_DICT",
    ),
    CountedName(r"(?P<head>consolidated\.)(?P<at>\d\d)(?P<tail>\.pth)", "LLaMA's own releases"),
    CountedName(r"(?P<head>.+-shard)(?P<at>\d+)(?P<tail>\.pt)", "fairseq and metaseq, FSDP shards"),
    CountedName(
        r"(?P<head>model-rank-)(?P<at>\d+)(?P<tail>-part-\d+\.safetensors)",
        "vLLM `ShardedStateLoader`",
    ),
    CountedName(r"(?P<head>ocdbt\.process_)(?P<at>\d+)(?P<tail>)", "Orbax, OCDBT"),
)


def _json(path: Path) -> object:
    if path.stat().st_size > _MOST_BYTES:
        return None
    return json.loads(path.read_bytes())


def _member(told: object, *keys: str) -> object:
    for key in keys:
        told = told.get(key) if isinstance(told, Mapping) else None
    return told


def _items(told: object) -> Sequence[object]:
    return told if isinstance(told, list) else ()


def _values(*keys: str) -> Callable[[Path], Iterable[str]]:
    """List the values of the mapping that is found by the keys."""

    def parts(path: Path) -> Iterable[str]:
        told = _member(_json(path), *keys)
        return [x for x in told.values() if isinstance(x, str)] if isinstance(told, Mapping) else []

    return parts


def _each(key: str, *inner: str) -> Callable[[Path], Iterable[str]]:
    """List a text of each item of the list under `key`: the item itself, or what is found in it by the `inner` keys."""

    def parts(path: Path) -> Iterable[str]:
        told = (_member(item, *inner) for item in _items(_member(_json(path), key)))
        return [x for x in told if isinstance(x, str)]

    return parts


def _keys(suffix: str, *keys: str) -> Callable[[Path], Iterable[str]]:
    """List the keys of the mapping that is found by the keys, each with the suffix."""

    def parts(path: Path) -> Iterable[str]:
        told = _member(_json(path), *keys)
        return [f"{x}{suffix}" for x in told if x] if isinstance(told, Mapping) else []

    return parts


def _pipeline(path: Path) -> Iterable[str]:
    """List the components of a diffusers pipeline. One that is left out is written as two nulls."""
    told = _json(path)
    for name, kind in told.items() if isinstance(told, Mapping) else ():
        if isinstance(kind, list) and len(kind) == 2 and all(isinstance(x, str) for x in kind):
            yield name


def _modules(path: Path) -> Iterable[str]:
    """List the directories of a sentence-transformers model. Some kinds of module write no file."""
    for item in _items(_json(path)):
        kind, at = _member(item, "type"), _member(item, "path")
        if isinstance(kind, str) and kind.endswith((".Transformer", ".Pooling", ".Dense")):
            yield from (x for x in (at,) if isinstance(x, str) and x)


def _mosaic(path: Path) -> Iterable[str]:
    """List the shards of a MosaicML or a LitData dataset. Of a compressed one, the raw file may be gone."""
    told = _json(path)
    for shard in _items(_member(told, "shards")):
        names = [_member(shard, kind, "basename") for kind in ("raw_data", "zip_data")]
        there = [name for name in names if isinstance(name, str)]
        if there:
            yield "|".join(there)
    for chunk in _items(_member(told, "chunks")):
        name = _member(chunk, "filename")
        if isinstance(name, str):
            yield name


def _weights_manifest(path: Path) -> Iterable[str]:
    for group in _items(_member(_json(path), "weightsManifest")):
        yield from (x for x in _items(_member(group, "paths")) if isinstance(x, str))


def _package(path: Path) -> Iterable[str]:
    items = _member(_json(path), "itemInfoEntries")
    for item in items.values() if isinstance(items, Mapping) else ():
        if isinstance(at := _member(item, "path"), str):
            yield f"Data/{at}"


def _found(pattern: bytes, form: str = "{}") -> Callable[[Path], Iterable[str]]:
    """List what the first group of the pattern matches anywhere in the file, put into `form`."""
    compiled = re.compile(pattern)

    def parts(path: Path) -> Iterable[str]:
        if path.stat().st_size > _MOST_BYTES:
            return ()
        return {
            form.format(x[1].decode("utf-8", "replace"))
            for x in compiled.finditer(path.read_bytes())
        }

    return parts


def _pointer(pattern: bytes, form: str = "{}") -> Callable[[Path], Iterable[str]]:
    """List what the first group of the pattern matches, if it matches the whole of this short file."""
    compiled = re.compile(pattern)

    def parts(path: Path) -> Iterable[str]:
        if path.stat().st_size > _LONGEST_POINTER_BYTES:
            return
        if told := compiled.fullmatch(path.read_bytes().strip()):
            yield form.format(told[1].decode("utf-8", "replace"))

    return parts


def _iteration(path: Path) -> Iterable[str]:
    for told in _pointer(rb"(\d{1,7}|release)")(path):
        yield f"iter_{int(told):07}" if told.isdigit() else told


_WORLD = re.compile(rb"dp_world_size(?:q.|r.{4}|\x94)?(?:K(.)|M(..))", re.DOTALL)
_HEAD_BYTES = 4 << 20


def _zero_ranks(path: Path) -> Iterable[str]:
    """List the optimizer states that a DeepSpeed model state counts on. Its pickle, not compressed, tells their number."""
    with path.open("rb") as file:
        told = _WORLD.search(file.read(_HEAD_BYTES))
    if told is not None:
        for rank in range(int.from_bytes(told[1] or told[2], "little")):
            yield f"*zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def _onnx(path: Path) -> Iterable[str]:
    with Source(path, path.name) as source:
        if source.size_bytes > _MOST_BYTES:
            return ()
        try:
            return files_elsewhere(source)
        except (Broken, Unread):
            return ()


LISTINGS = (
    PartsList(
        r".+\.index\.json",
        _values("weight_map"),
        "transformers and diffusers, `*.safetensors.index.json`",
    ),
    PartsList(r"state\.json", _each("_data_files", "filename"), "datasets `save_to_disk`"),
    PartsList(r"dataset_dict\.json", _each("splits"), "datasets `DatasetDict.save_to_disk`"),
    PartsList(r"model_index\.json", _pipeline, "diffusers `DiffusionPipeline.save_pretrained`"),
    PartsList(r"modules\.json", _modules, "sentence-transformers `SentenceTransformer.save`"),
    PartsList(r"index\.json", _mosaic, "MosaicML streaming `MDSWriter`, LitData `BinaryWriter`"),
    PartsList(r"model\.json", _weights_manifest, "TensorFlow.js `weightsManifest`"),
    PartsList(r"Manifest\.json", _package, "Core ML packages", directory=r"\.mlpackage$"),
    PartsList(r"\.zmetadata", _keys("", "metadata"), "zarr 2, consolidated metadata"),
    PartsList(
        r"zarr\.json",
        _keys("/zarr.json", "consolidated_metadata", "metadata"),
        "zarr 3, consolidated metadata",
    ),
    PartsList(
        r"_CHECKPOINT_METADATA", _keys("", "item_handlers"), "Orbax, the items of a composite"
    ),
    PartsList(r"\.metadata", _found(rb"(__\d+_\d+\.distcp)"), "torch.distributed.checkpoint"),
    PartsList(
        r"\.snapshot_metadata",
        _found(rb"\"?location\"?: \"?([\w./%-]+)"),
        "torchsnapshot, its manifest",
    ),
    PartsList(r".+\.onnx", _onnx, "ONNX, external data"),
    PartsList(r"latest", _pointer(rb"(global_step\d+)"), "DeepSpeed `save_checkpoint`"),
    PartsList(
        r"latest",
        _pointer(rb"([\w.=-]+)"),
        "DeepSpeed with a tag of its user; Lightning's strategy has the tag `checkpoint`",
        beside=r"zero_to_fp32\.py",
    ),
    PartsList(
        r"mp_rank_00_model_states\.pt",
        _zero_ranks,
        "DeepSpeed, `dp_world_size` of a model state",
        beside=r"\w*zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt",
    ),
    PartsList(
        r"latest_checkpointed_iteration\.txt",
        _iteration,
        "Megatron `get_checkpoint_tracker_filename`",
    ),
    PartsList(
        r"checkpoint",
        _found(rb"(?m)^model_checkpoint_path: \"(?:[^\"\n]*/)?([^\"/\n]+)\"", "{}.index"),
        "TensorFlow `update_checkpoint_state`",
        beside=r".+\.(?:index|data-\d{5}-of-\d{5})",
    ),
    PartsList(
        r"last_checkpoint",
        _pointer(rb"(?:[^\n]*/)?([^/\n]+\.pth)"),
        "detectron2 `Checkpointer`, mmengine `CheckpointHook`",
        beside=r".+\.pth",
    ),
    PartsList(r"CURRENT", _pointer(rb"(MANIFEST-\d+)"), "LevelDB and RocksDB"),
)

POINTERS = ("/latest", "/latest_checkpointed_iteration.txt", "/checkpoint", "/last_checkpoint")
"""The files that name the newest checkpoint beside them. They are small, and written anew at each save."""

WEIGHTS = (
    "*.safetensors",
    "pytorch_model*.bin",
    "adapter_model*",
    "*model_states.pt",
    "model*.bin",
    "diffusion_pytorch_model*",
    "*.distcp",
    "*.pt",
    "*.pth",
    "*.bin",
    "*.msgpack",
    "*.h5",
    "*.npz",
    "*.gguf",
    "*.ckpt",
)
NO_WEIGHTS = re.compile(
    r"training_args\.bin|(?:optimizer|scheduler|scaler|sampler|dl_state_dict)(?:_\d+)?\.(?:bin|pt)"
    r"|rng_state.*\.pth|.*optim_states\.pt|custom_checkpoint_\d+\.pkl|tokenizer.*|spiece\.model"
)
"""Files that have the suffix of weights, and are none."""
_ADAPTER = ("adapter_model.safetensors", *WEIGHTS)

COMPANIONS = (
    Companion(r"adapter_config\.json", _ADAPTER, "PEFT `save_pretrained`; also AdapterHub, MLX"),
    Companion(
        r"trainer_state\.json",
        (*WEIGHTS, "pytorch_model_fsdp_0"),
        "transformers `Trainer._save_checkpoint`",
        directory=r"(?:^|/)checkpoint-\d+$",
        deep=True,
    ),
    Companion(
        r"training_args\.bin",
        ("trainer_state.json",),
        "transformers `Trainer._save_checkpoint`, which writes it last",
        directory=r"(?:^|/)checkpoint-\d+$",
    ),
    Companion(
        r"random_states_\d+\.pkl",
        ("model.safetensors", *WEIGHTS),
        "accelerate `save_state`",
        deep=True,
    ),
    Companion(
        r"optimizer_(?P<stem>\d+)",
        ("pytorch_model_fsdp_{stem}", *WEIGHTS),
        "accelerate `save_fsdp_optimizer`",
        beside=r"trainer_state\.json|random_states_\d+\.pkl",
    ),
    Companion(
        r"sampler(?:_\d+)?\.bin",
        ("random_states_0.pkl", "random_states_*.pkl"),
        "accelerate `save_accelerator_state`, which writes it last",
    ),
    Companion(r"\.metadata", ("*.distcp",), "torch.distributed.checkpoint"),
    Companion(
        r"__\d+_\d+\.distcp",
        (".metadata",),
        "torch.distributed.checkpoint, which writes it last",
    ),
    Companion(
        r"\.metadata",
        ("meta.pt", "common.pt"),
        "Lightning `FSDPStrategy.save_checkpoint`",
        directory=r"\.ckpt$",
    ),
    Companion(
        r"\w*zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt",
        ("mp_rank_00_model_states.pt", "*model_states.pt"),
        "DeepSpeed `save_checkpoint`",
    ),
    Companion(
        r"(?P<stem>zero_pp_rank_\d+_mp_rank_\d+)_model_states\.pt",
        ("{stem}_optim_states.pt", "*_{stem}_optim_states.pt"),
        "DeepSpeed, stage 3",
        beside=r".+_optim_states\.pt",
    ),
    Companion(
        r"distrib_optim\.pt",
        ("model_optim_rng.pt", "model_rng.pt"),
        "Megatron, distributed optimizer",
    ),
    Companion(
        r"(?P<stem>(?:.*[-_.])?(?:ckpt|cp|checkpoint|variables|weights|model\.ckpt)(?:[-_.]?\w+)*)\.index",
        ("{stem}.data-00000-of-00001", "{stem}.data-*"),
        "TensorFlow `Checkpoint.save`, SavedModel",
    ),
    Companion(
        r"(?P<stem>.+)\.data-\d{5}-of-\d{5}",
        ("{stem}.index",),
        "TensorFlow `Checkpoint.save`, SavedModel",
    ),
    Companion(r"ocdbt\.process_\d+", ("manifest.ocdbt",), "Orbax, which merges them at the end"),
    Companion(
        r"_METADATA",
        ("manifest.ocdbt", ".zarray", "zarr.json", "checkpoint"),
        "Orbax `PyTreeCheckpointHandler`",
        deep=True,
    ),
    Companion(r"manifest\.ocdbt", ("d", "ocdbt.process_*"), "TensorStore, OCDBT"),
    Companion(
        r".+",
        (".zgroup", ".zarray", "zarr.json", ".zmetadata"),
        "zarr, the root of a store",
        directory=r"\.zarr$",
    ),
    Companion(
        r"\d+(?:\.\d+)*",
        (".zarray", ".zgroup", "zarr.json"),
        "zarr 2, the chunks of an array",
        directory=r"\.zarr/(?:.*/)?(?!c(?:/|$))[^/]*[A-Za-z_][^/]*$",
    ),
    Companion(r"c", ("zarr.json",), "zarr 3, the chunks of an array", directory=r"\.zarr/"),
    Companion(r"lock\.mdb", ("data.mdb",), "LMDB"),
    Companion(r"(?P<stem>.+\.l?mdb)-lock", ("{stem}",), "LMDB without a directory"),
    Companion(r"(?P<stem>.+)\.shp", ("{stem}.shx",), "shapefiles"),
    Companion(r"(?P<stem>.+_document)\.idx", ("{stem}.bin",), "Megatron, indexed datasets"),
    Companion(r"(?P<stem>openvino_.+)\.xml", ("{stem}.bin",), "OpenVINO"),
    Companion(r"(?P<stem>.+\.ncnn)\.param", ("{stem}.bin",), "ncnn"),
    Companion(r"(?P<stem>.+)\.pdmodel", ("{stem}.pdiparams",), "Paddle `jit.save`"),
    Companion(r"(?P<stem>.+)\.pdopt", ("{stem}.pdparams",), "Paddle `save`"),
    Companion(r"(?P<stem>.+)-symbol\.json", ("{stem}-*.params",), "MXNet `export`"),
)

CUT_OFF = re.compile(
    r"tmp-checkpoint-\d+|.+\.orbax-checkpoint-tmp(?:-\d+)?|.*-unfinished|.+\.unfinished"
    r"|.+\.(?:tmp|part|partial|incomplete|inprogress)|\.tmp[-_.].+|.+\.tmp\.[\w-]{1,16}",
    re.IGNORECASE,
)
"""The names that a save has until it is whole: of transformers, Orbax, NeMo, and of who writes beside and renames."""
