"""The globals that a pickle may name without harm: building them makes only plain values, tensors or arrays.

Source: `_get_allowed_globals` of `torch/_weights_only_unpickler.py` (2.13), and what numpy and the standard
library write for their own values.
"""

_TORCH_REBUILDS = frozenset(
    f"torch._utils._rebuild_{what}"
    for what in (
        "tensor",
        "tensor_v2",
        "tensor_v3",
        "parameter",
        "parameter_with_state",
        "qtensor",
        "sparse_tensor",
        "meta_tensor_no_storage",
        "nested_tensor",
        "wrapper_subclass",
        "device_tensor_from_numpy",
        "device_tensor_from_cpu_tensor",
    )
)
WEIGHTS_ONLY = _TORCH_REBUILDS | frozenset(
    {
        "collections.OrderedDict",
        "collections.Counter",
        "_codecs.encode",
        "builtins.set",
        "builtins.bytearray",
        "builtins.complex",
        "__builtin__.set",
        "__builtin__.bytearray",
        "__builtin__.complex",
        "torch.Size",
        "torch.Tensor",
        "torch.device",
        "torch.nn.Parameter",
        "torch.nn.parameter.Parameter",
        "torch.nn.parameter.UninitializedParameter",
        "torch._tensor._rebuild_from_type_v2",
        "torch.storage.UntypedStorage",
        "torch.UntypedStorage",
        *(
            f"torch.{kind}Storage"
            for kind in (
                "Half",
                "BFloat16",
                "Float",
                "Double",
                "Char",
                "Short",
                "Int",
                "Long",
                "Byte",
                "Bool",
                "ComplexFloat",
                "ComplexDouble",
            )
        ),
        "torch.serialization._get_layout",
        *(
            f"torch.{name}"
            for name in (
                "float16",
                "bfloat16",
                "float32",
                "float64",
                "half",
                "float",
                "double",
                "int8",
                "int16",
                "int32",
                "int64",
                "uint8",
                "uint16",
                "uint32",
                "uint64",
                "bool",
                "complex32",
                "complex64",
                "complex128",
                "float8_e4m3fn",
                "float8_e4m3fnuz",
                "float8_e5m2",
                "float8_e5m2fnuz",
                "float8_e8m0fnu",
                "float4_e2m1fn_x2",
                "per_tensor_affine",
                "per_channel_affine",
                "per_tensor_symmetric",
                "per_channel_symmetric",
                "strided",
                "qint8",
                "quint8",
                "qint32",
            )
        ),
    }
)
"""The globals that torch's own weights-only unpickler builds by default."""

_NUMPY = frozenset(
    f"{package}.{name}"
    for package in ("numpy.core.multiarray", "numpy._core.multiarray")
    for name in ("_reconstruct", "scalar")
) | {
    "numpy.ndarray",
    "numpy.dtype",
    "numpy.core.numeric._frombuffer",
    "numpy._core.numeric._frombuffer",
    "numpy.random._pickle.__randomstate_ctor",
    "numpy.random._pickle.__generator_ctor",
    "numpy.random._pickle.__bit_generator_ctor",
    "numpy.random._mt19937.MT19937",
    "numpy.random._pcg64.PCG64",
}
_PLAIN = frozenset(
    f"{package}.{name}"
    for package in ("builtins", "__builtin__")
    for name in (
        "list",
        "dict",
        "tuple",
        "frozenset",
        "int",
        "float",
        "str",
        "bytes",
        "bool",
        "object",
        "slice",
        "range",
    )
) | {
    "copyreg._reconstructor",
    "copy_reg._reconstructor",
    "datetime.datetime",
    "datetime.date",
    "datetime.timedelta",
    "datetime.timezone",
    "decimal.Decimal",
    "collections.defaultdict",
    "collections.deque",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "uuid.UUID",
    "argparse.Namespace",
}
KNOWN = WEIGHTS_ONLY | _NUMPY | _PLAIN
"""The globals that a pickle may name without harm."""
