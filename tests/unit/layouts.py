"""What frameworks leave on a disk, in small: whole sets of files, and for each the files without which it is half."""

import json
import struct
from collections.abc import Mapping
from typing import NamedTuple

INDEX = {"weight_map": {f"layer.{i}": f"model-{i + 1:05}-of-00003.safetensors" for i in range(3)}}


def _safe(*names: str) -> bytes:
    """Return a safetensors file with these tensors of four floats each."""
    told = {
        name: {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]}
        for i, name in enumerate(names)
    }
    head = json.dumps(told).encode()
    head += b" " * (-len(head) % 8)
    return struct.pack("<Q", len(head)) + head + struct.pack("<4f", 1, 2, 3, 4) * len(names)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _onnx(*locations: str) -> bytes:
    """Return an ONNX model whose tensors lie in other files."""
    entries = [_field(13, _field(1, b"location") + _field(2, x.encode())) for x in locations]
    tensors = b"".join(_field(5, b"\x10\x01" + entry + b"\x70\x01") for entry in entries)
    return _field(7, tensors) + _field(8, b"\x10\x11")


def _model_state(ranks: int) -> bytes:
    return b"PK\x03\x04 archive/data.pkl \x80\x02}q\x00(X\r\x00\x00\x00dp_world_sizeq\x01K" + bytes(
        [ranks]
    )


class Layout(NamedTuple):
    """A whole set. Without one of `needed`, it is half, and the value is what is named then."""

    files: Mapping[str, bytes]
    needed: Mapping[str, str]


SAFE = _safe("a")
OPAQUE = b"\x01\x02\x03\x04" * 8


def _of(*names: str, **content: bytes) -> dict[str, bytes]:
    return dict.fromkeys(names, OPAQUE)


def _needs(*names: str, **as_named: str) -> dict[str, str]:
    return {name: name.rpartition("/")[2] for name in names}


_SHARDS = [f"model-{i:05}-of-00003.safetensors" for i in (1, 2, 3)]
_ZERO = [f"bf16_zero_pp_rank_{i}_mp_rank_00_optim_states.pt" for i in range(4)]
_DISTCP = [f"__{i}_0.distcp" for i in range(4)]
_META = b"\x80\x04" + b"".join(b"\x8c\x0b" + name.encode() + b"\x94" for name in _DISTCP)

LAYOUTS: dict[str, Layout] = {
    "transformers, sharded": Layout(
        {
            **dict.fromkeys(_SHARDS, SAFE),
            "model.safetensors.index.json": json.dumps(INDEX).encode(),
            "config.json": b"{}",
        },
        _needs(*_SHARDS),
    ),
    "transformers, an index of other names": Layout(
        {
            "a.safetensors": SAFE,
            "sub/b.safetensors": SAFE,
            "w.safetensors.index.json": b'{"weight_map": {"x": "a.safetensors", "y": "sub/b.safetensors"}}',
        },
        {"a.safetensors": "a.safetensors", "sub/b.safetensors": "sub/b.safetensors"},
    ),
    "transformers, a checkpoint": Layout(
        {
            **_of(
                *(
                    f"checkpoint-500/{x}"
                    for x in (
                        "training_args.bin",
                        "optimizer.pt",
                        "rng_state_0.pth",
                        "rng_state_1.pth",
                        "rng_state_2.pth",
                    )
                )
            ),
            "checkpoint-500/model.safetensors": SAFE,
            "checkpoint-500/trainer_state.json": b"{}",
        },
        {
            "checkpoint-500/trainer_state.json": "trainer_state.json",
            "checkpoint-500/model.safetensors": "*.safetensors",
            "checkpoint-500/rng_state_1.pth": "rng_state_1.pth",
        },
    ),
    "transformers with DeepSpeed": Layout(
        {
            **_of("checkpoint-500/training_args.bin", "checkpoint-500/zero_to_fp32.py"),
            **_of(*(f"checkpoint-500/global_step500/{x}" for x in _ZERO)),
            "checkpoint-500/global_step500/mp_rank_00_model_states.pt": _model_state(4),
            "checkpoint-500/latest": b"global_step500",
            "checkpoint-500/trainer_state.json": b"{}",
        },
        {
            "checkpoint-500/global_step500/": "global_step500",
            f"checkpoint-500/global_step500/{_ZERO[1]}": "zero_pp_rank_1",
            f"checkpoint-500/global_step500/{_ZERO[3]}": "zero_pp_rank_3",
            "checkpoint-500/global_step500/mp_rank_00_model_states.pt": "mp_rank_00_model_states.pt",
        },
    ),
    "DeepSpeed, stage 3": Layout(
        {
            **_of(
                *(
                    f"global_step9/zero_pp_rank_{i}_mp_rank_00_{x}_states.pt"
                    for i in range(2)
                    for x in ("model", "optim")
                )
            ),
            "latest": b"global_step9\n",
        },
        {
            "global_step9/zero_pp_rank_1_mp_rank_00_optim_states.pt": "zero_pp_rank_1_mp_rank_00_optim_states.pt",
            "global_step9/": "global_step9",
        },
    ),
    "DeepSpeed with a tag": Layout(
        {**_of("best/mp_rank_00_model_states.pt", "zero_to_fp32.py"), "latest": b"best"},
        {"best/": "best"},
    ),
    "a distributed checkpoint": Layout(
        {**_of(*(f"step-10/{x}" for x in _DISTCP)), "step-10/.metadata": _META},
        {
            "step-10/__2_0.distcp": "__2_0.distcp",
            "step-10/.metadata": ".metadata",
            "step-10/__3_0.distcp": "__3_0.distcp",
        },
    ),
    "accelerate with FSDP": Layout(
        {
            **_of(
                *(
                    f"checkpoint-3/{part}_0/{x}"
                    for part in ("pytorch_model_fsdp", "optimizer")
                    for x in _DISTCP
                )
            ),
            "checkpoint-3/pytorch_model_fsdp_0/.metadata": _META,
            "checkpoint-3/optimizer_0/.metadata": _META,
            "checkpoint-3/trainer_state.json": b"{}",
        },
        {
            "checkpoint-3/optimizer_0/__1_0.distcp": "__1_0.distcp",
            "checkpoint-3/pytorch_model_fsdp_0/": "pytorch_model_fsdp_0",
        },
    ),
    "accelerate": Layout(
        _of(
            "model.safetensors",
            "optimizer.bin",
            "scheduler.bin",
            "sampler.bin",
            "random_states_0.pkl",
            "random_states_1.pkl",
        ),
        {"model.safetensors": "model.safetensors", "random_states_0.pkl": "random_states_0.pkl"},
    ),
    "accelerate with diffusers": Layout(
        _of(
            "checkpoint-5/unet/diffusion_pytorch_model.safetensors",
            "checkpoint-5/optimizer.bin",
            "checkpoint-5/random_states_0.pkl",
        ),
        {"checkpoint-5/unet/": "model.safetensors"},
    ),
    "PEFT": Layout(
        {
            "adapter_config.json": b"{}",
            "adapter_model.safetensors": SAFE,
            **_of("training_args.bin"),
        },
        _needs("adapter_model.safetensors"),
    ),
    "PEFT, several adapters": Layout(
        {
            f"{x}/{y}": b"{}"
            for x in ("one", "two")
            for y in ("adapter_config.json", "adapter_model.bin")
        },
        {"two/adapter_model.bin": "adapter_model.safetensors"},
    ),
    "MLX": Layout(
        {
            "adapter_config.json": b"{}",
            **_of("0000100_adapters.safetensors", "adapters.safetensors"),
        },
        {},
    ),
    "TensorFlow": Layout(
        {
            **_of("ckpt-10.index", "ckpt-10.data-00000-of-00002", "ckpt-10.data-00001-of-00002"),
            "checkpoint": b'model_checkpoint_path: "ckpt-10"\nall_model_checkpoint_paths: "ckpt-9"\n',
        },
        {
            "ckpt-10.index": "ckpt-10.index",
            "ckpt-10.data-00001-of-00002": "ckpt-10.data-00001-of-00002",
        },
    ),
    "SavedModel": Layout(
        _of(
            "saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"
        ),
        {
            "variables/variables.index": "variables.index",
            "variables/variables.data-00000-of-00001": "variables.data-00000-of-00001",
        },
    ),
    "ONNX": Layout(
        {
            "model.onnx": _onnx("model.onnx.data", "./more.bin"),
            **_of("model.onnx.data", "more.bin"),
        },
        _needs("model.onnx.data", "more.bin"),
    ),
    "GGUF": Layout(
        _of(*(f"llama-Q4_K_M-{i:05}-of-00003.gguf" for i in (1, 2, 3))),
        _needs(*(f"llama-Q4_K_M-{i:05}-of-00003.gguf" for i in (1, 2, 3))),
    ),
    "parts by hand": Layout(
        _of(
            *(f"ckpt_shard-{i}-of-4.pt" for i in range(4)),
            *(f"part_{i:02}_of_03.npz" for i in (1, 2, 3)),
        ),
        _needs("ckpt_shard-2-of-4.pt", "part_02_of_03.npz", "ckpt_shard-0-of-4.pt")
        | {"ckpt_shard-0-of-4.pt": "ckpt_shard-4-of-4.pt"},
    ),
    "zarr 2": Layout(
        {
            "x.zarr/.zgroup": b"{}",
            "x.zarr/.zmetadata": b'{"metadata": {".zgroup": {}, "a/.zarray": {}, "labels/.zgroup": {}}}',
            **_of(
                "x.zarr/a/.zarray",
                "x.zarr/a/0.0",
                "x.zarr/a/1.0",
                "x.zarr/labels/.zgroup",
                "x.zarr/labels/0/.zarray",
                "x.zarr/labels/0/0/0",
            ),
        },
        {"x.zarr/a/.zarray": "a/.zarray"},
    ),
    "zarr 2 without a list": Layout(
        _of("x.zarr/.zgroup", "x.zarr/a/.zarray", "x.zarr/a/0.0"),
        {"x.zarr/.zgroup": ".zgroup", "x.zarr/a/.zarray": ".zarray"},
    ),
    "zarr 3": Layout(
        {
            "x.zarr/zarr.json": b'{"consolidated_metadata": {"metadata": {"a": {}}}}',
            **_of("x.zarr/a/zarr.json", "x.zarr/a/c/0/0"),
        },
        {"x.zarr/zarr.json": ".zgroup", "x.zarr/a/zarr.json": "zarr.json"},
    ),
    "LMDB": Layout(
        _of("db/data.mdb", "db/lock.mdb", "f.lmdb", "f.lmdb-lock"),
        {"db/data.mdb": "data.mdb", "f.lmdb": "f.lmdb"},
    ),
    "LMDB without its locks": Layout(_of("db/data.mdb", "f.lmdb"), {}),
    "Lightning": Layout(
        _of(
            "lightning_logs/version_0/checkpoints/epoch=1-step=10.ckpt",
            "lightning_logs/version_0/hparams.yaml",
        ),
        {},
    ),
    "Lightning with DeepSpeed": Layout(
        {
            **_of(
                "e.ckpt/checkpoint/mp_rank_00_model_states.pt",
                "e.ckpt/checkpoint/zero_pp_rank_0_mp_rank_00_optim_states.pt",
                "e.ckpt/zero_to_fp32.py",
            ),
            "e.ckpt/latest": b"checkpoint",
        },
        {"e.ckpt/checkpoint/": "checkpoint"},
    ),
    "Lightning with FSDP": Layout(
        {"e.ckpt/.metadata": _META, **_of("e.ckpt/meta.pt", *(f"e.ckpt/{x}" for x in _DISTCP))},
        {"e.ckpt/meta.pt": "meta.pt"},
    ),
    "Orbax": Layout(
        {
            "100/_CHECKPOINT_METADATA": b'{"item_handlers": {"state": "orbax.StandardCheckpointHandler"}}',
            **_of(
                "100/state/_METADATA",
                "100/state/manifest.ocdbt",
                "100/state/d/1a",
                "100/state/ocdbt.process_0/manifest.ocdbt",
                "100/state/ocdbt.process_0/d/2b",
            ),
        },
        {"100/state/": "state", "100/state/manifest.ocdbt": "manifest.ocdbt"},
    ),
    "Orbax without OCDBT": Layout(
        _of("7/_METADATA", "7/params/.zarray", "7/params/0"), {"7/params/": "manifest.ocdbt"}
    ),
    "Megatron": Layout(
        {
            **_of(
                *(
                    f"iter_0000500/mp_rank_{i:02}/{x}"
                    for i in range(4)
                    for x in ("model_optim_rng.pt", "distrib_optim.pt")
                )
            ),
            "latest_checkpointed_iteration.txt": b"500",
        },
        {
            "iter_0000500/mp_rank_02/": "mp_rank_02",
            "iter_0000500/mp_rank_03/model_optim_rng.pt": "model_optim_rng.pt",
            "iter_0000500/": "iter_0000500",
        },
    ),
    "fairseq": Layout(
        _of(*(f"checkpoint_1_500-shard{i}.pt" for i in range(3))),
        _needs("checkpoint_1_500-shard1.pt"),
    ),
    "LLaMA": Layout(
        _of(*(f"consolidated.{i:02}.pth" for i in range(8)), "params.json"),
        _needs("consolidated.03.pth"),
    ),
    "detectron2": Layout(
        {"last_checkpoint": b"model_0004999.pth", **_of("model_0004999.pth", "model_0002499.pth")},
        _needs("model_0004999.pth"),
    ),
    "diffusers": Layout(
        {
            "model_index.json": b'{"_class_name": "P", "unet": ["diffusers", "U"], "vae": ["diffusers", "V"], "safety_checker": [null, null]}',
            **_of(
                "unet/diffusion_pytorch_model.safetensors",
                "vae/diffusion_pytorch_model.safetensors",
            ),
        },
        {"vae/": "vae"},
    ),
    "sentence-transformers": Layout(
        {
            "modules.json": b'[{"path": "", "type": "s.models.Transformer"}, {"path": "1_Pooling", "type": "s.models.Pooling"}, {"path": "2_Normalize", "type": "s.models.Normalize"}]',
            **_of("model.safetensors", "1_Pooling/config.json"),
        },
        {"1_Pooling/": "1_Pooling"},
    ),
    "datasets": Layout(
        {
            "dataset_dict.json": b'{"splits": ["train", "test"]}',
            "train/state.json": b'{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}',
            "test/state.json": b'{"_data_files": [{"filename": "part.arrow"}]}',
            **_of("train/data-00000-of-00001.arrow", "test/part.arrow"),
        },
        {"test/": "test", "test/part.arrow": "part.arrow"},
    ),
    "MosaicML": Layout(
        {
            "index.json": b'{"shards": [{"raw_data": {"basename": "s.0.mds"}, "zip_data": {"basename": "s.0.mds.zstd"}}, {"raw_data": {"basename": "s.1.mds"}, "zip_data": null}]}',
            **_of("s.0.mds.zstd", "s.1.mds"),
        },
        {"s.1.mds": "s.1.mds"},
    ),
    "LevelDB": Layout(
        {"db/CURRENT": b"MANIFEST-000004\n", **_of("db/MANIFEST-000004", "db/000005.ldb")},
        {"db/MANIFEST-000004": "MANIFEST-000004"},
    ),
}

NO_SETS: dict[str, dict[str, bytes]] = {
    "the course of a job": _of("epoch-1-of-10.pt", "fold-1-of-5.pkl", "step_00010-of-00500.pt"),
    "the best and the last": _of("best.pt", "last.pt", "epoch_3.pth"),
    "a vector index": _of("faiss.index", "ids.npy"),
    "a config without weights": {"config.json": b"{}", "tokenizer_config.json": b"{}"},
    "a state beside results": {"trainer_state.json": b"{}", "all_results.json": b"{}"},
    "a list of other things": {
        "index.json": b'{"pages": [1, 2]}',
        "model.json": b'{"a": 1}',
        "state.json": b"{}",
    },
    "a name that is no pointer": {"latest": b"3 runs so far: all is well", "checkpoint": b"hello"},
    "a link to a checkpoint": {
        "latest/model.safetensors": SAFE,
        "checkpoint/model.safetensors": SAFE,
    },
    "an index that cannot be read": {
        "m.safetensors.index.json": b"{",
        "n.index.json": b"[1]",
        "o.index.json": b'{"weight_map": {"a": 1, "b": "/etc/x", "c": "../y"}}',
    },
    "ranks of the second of two boxes": _of(*(f"rng_state_{i}.pth" for i in range(8, 16))),
    "versions": _of("v/1.0", "v/2.0", "c/a.txt"),
    "a model with its values": {"model.onnx": _onnx(), **_of("model.idx", "graph.xml")},
}
