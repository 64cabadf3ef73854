"""Follows the opcodes of a pickle symbolically. It keeps track of names and storages, and never calls anything.

Source: the opcode table and the stack effects in the standard library's `pickletools`; persistent ids and
rebuild functions as in `torch/serialization.py` and `torch/_utils.py`.
"""

import pickletools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gpu_tenant.artifacts.formats.bounded_file import Broken, Cursor, Findings, Unread, count_of
from gpu_tenant.artifacts.formats.pickle_allowlist import KNOWN

_KEPT_VALUES = 500_000
_MOST_OPCODES = 20_000_000
_DEEPEST_STACK = 4_000_000
_LARGEST_MEMO = 32 << 20

ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "F16": 2,
        "BF16": 2,
        "F32": 4,
        "F64": 8,
        "I8": 1,
        "I16": 2,
        "I32": 4,
        "I64": 8,
        "U8": 1,
        "BOOL": 1,
        "C64": 8,
        "C128": 16,
        "BYTES": 1,
    }
)
_STORAGES = {
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64",
    "torch.CharStorage": "I8",
    "torch.ShortStorage": "I16",
    "torch.IntStorage": "I32",
    "torch.LongStorage": "I64",
    "torch.ByteStorage": "U8",
    "torch.BoolStorage": "BOOL",
    "torch.ComplexFloatStorage": "C64",
    "torch.ComplexDoubleStorage": "C128",
    "torch.UntypedStorage": "BYTES",
    "torch.storage.UntypedStorage": "BYTES",
}
_REBUILD_ARGUMENTS = {"torch._utils._rebuild_tensor_v2": 6, "torch._utils._rebuild_tensor_v3": 7}


@dataclass(frozen=True, slots=True)
class Global:
    """Something that the pickle names and would import, for example `torch.FloatStorage` or `os.system`."""

    name: str


@dataclass(frozen=True, slots=True)
class Storage:
    """A sequence of values to which the pickle refers. The values themselves are stored outside of the pickle."""

    key: str
    dtype: str | None
    count: int

    @property
    def size_bytes(self) -> int | None:
        """The size of all values in bytes. None if their type is unknown."""
        return None if self.dtype is None else self.count * ITEM_BYTES[self.dtype]


@dataclass
class Scan:
    """The content of one pickle, as far as it is known without unpickling."""

    end: int = 0
    result: object = None
    opcodes: int = 0
    globals: set[str] = field(default_factory=set)
    storages: dict[str, Storage] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    persistent_ids: int = 0

    def report(self, findings: Findings) -> None:
        """Report that the pickle is whole. Name those of its imports that are not known to be harmless."""
        findings.proved.append(f"the pickle is whole: {count_of(self.opcodes, 'opcode')}, to STOP")
        if strange := sorted(self.globals - KNOWN):
            findings.warn(f"unpickling would import and may run {', '.join(strange[:12])}")
            findings.not_proved.append("unpickling is unsafe and was not attempted")


class OpaqueValue:
    """Stands for every value that the machine does not keep."""


class _Mark:
    """Stands on the stack for a MARK opcode."""


UNSEEN, _MARK = OpaqueValue(), _Mark()


class PickleMachine:
    """Follows one pickle. It keeps names and small values. Every other value becomes `UNSEEN`."""

    def __init__(self, at: int) -> None:
        self.scan = Scan(end=at)
        self.stopped = False
        self._stack: list[object] = []
        self._memo: dict[int, object] = {}
        self._written = bytearray()
        self._room = _KEPT_VALUES

    def step(self, opcode: pickletools.OpcodeInfo, argument: object, cursor: Cursor) -> None:
        """Follow one opcode. The stack gets the same shape as in unpickling, but not the same content.

        Raises:
            Broken: the opcode does not fit the stack, or is damaged.
            Unread: the pickle is too large, or refers to data that is kept elsewhere.
        """
        self.scan.opcodes += 1
        if self.scan.opcodes > _MOST_OPCODES or len(self._stack) > _DEEPEST_STACK:
            raise Unread(
                f"a pickle of more than {self.scan.opcodes - 1:,} opcodes is not followed here"
            )
        operands, items = self._operands(opcode)
        match opcode.name:
            case "STOP":
                self.scan.result = operands[0]
                self.stopped = True
            case "FRAME":
                if isinstance(argument, int) and argument > cursor.left:
                    raise Broken(f"a frame of {argument:,} bytes, with {cursor.left:,} left")
            case "PROTO":
                if argument not in (2, 3, 4, 5):
                    raise Broken(f"pickle protocol {argument} does not exist")
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self._stack += operands
                self._remember(argument)
            case "GET" | "BINGET" | "LONG_BINGET":
                self._stack.append(self._recall(argument))
            case "DUP":
                self._stack += [operands[0], operands[0]]
            case "NEXT_BUFFER" | "READONLY_BUFFER":
                raise Unread("the pickle refers to buffers that are kept elsewhere")
            case _:
                if opcode.stack_after:
                    self._stack.append(self._value(opcode.name, argument, operands, items))

    def _operands(self, opcode: pickletools.OpcodeInfo) -> tuple[list[object], list[object]]:
        """Remove the opcode's operands from the stack. Return those below its MARK, and those above the MARK."""
        before = opcode.stack_before
        items: list[object] = []
        fixed = len(before)
        popped_mark = opcode.name == "POP" and self._stack and self._stack[-1] is _MARK
        if pickletools.markobject in before or popped_mark:
            while self._stack and self._stack[-1] is not _MARK:
                items.append(self._stack.pop())
            if not self._stack:
                raise Broken(f"{opcode.name} finds no MARK")
            self._stack.pop()
            items.reverse()
            fixed = 0 if popped_mark else before.index(pickletools.markobject)
        if fixed > len(self._stack):
            raise Broken(f"{opcode.name} finds an empty stack")
        operands = self._stack[len(self._stack) - fixed :] if fixed else []
        del self._stack[len(self._stack) - fixed :]
        if any(operand is _MARK for operand in operands):
            raise Broken(f"{opcode.name} finds a MARK where a value is due")
        return operands, items

    def _value(
        self, name: str, argument: object, operands: list[object], items: list[object]
    ) -> object:
        match name:
            case "MARK":
                return _MARK
            case "GLOBAL" | "INST":
                return self._find_global(str(argument).replace(" ", ".", 1))
            case "STACK_GLOBAL":
                module, attribute = operands
                if isinstance(module, str) and isinstance(attribute, str):
                    return self._find_global(f"{module}.{attribute}")
                return self._find_global("a name computed while unpickling")
            case "EXT1" | "EXT2" | "EXT4":
                return self._find_global(f"copyreg extension {argument}")
            case "PERSID" | "BINPERSID":
                return self._persistent(operands[0] if operands else argument)
            case "EMPTY_TUPLE" | "TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                return self._keep(tuple(items or operands))
            case "EMPTY_LIST" | "LIST":
                return self._keep(items)
            case "APPEND" | "APPENDS":
                target = operands[0]
                added = items if name == "APPENDS" else operands[1:]
                if isinstance(target, list) and self._keep(added) is not UNSEEN:
                    target += added
                return target
            case "SETITEM" | "SETITEMS" | "DICT":
                self._label(operands[1:] if name == "SETITEM" else items)
                return operands[0] if operands else UNSEEN
            case "ADDITEMS" | "BUILD":
                return operands[0]
            case "REDUCE" | "NEWOBJ" | "NEWOBJ_EX":
                return self._call(operands[0], operands[1])
            case _:
                return self._keep(argument) if isinstance(argument, (str, int)) else UNSEEN

    def _keep(self, value: object) -> object:
        """Return the value itself, or `UNSEEN` if the machine already keeps as many values as it may.

        A pickle may contain any number of values.
        """
        self._room -= len(value) if isinstance(value, (list, tuple)) else 1
        return value if self._room > 0 else UNSEEN

    def _find_global(self, name: str) -> object:
        if name not in self.scan.globals:
            if self._room <= 0:
                raise Unread("the pickle names too many things to be followed here")
            self._room -= 1
            self.scan.globals.add(name)
        return Global(name)

    def _remember(self, argument: object) -> None:
        if not self._stack:
            raise Broken("a memo is written from an empty stack")
        index = argument if isinstance(argument, int) else len(self._written)
        if not 0 <= index < _LARGEST_MEMO:
            raise Unread(f"memo {index:,} is not followed here")
        value = self._stack[-1]
        if value is not UNSEEN and self._keep(value) is not UNSEEN:
            self._memo[index] = value
        self._written += bytes(max(0, index + 1 - len(self._written)))
        self._written[index] = True

    def _recall(self, argument: object) -> object:
        written = isinstance(argument, int) and self._written[argument : argument + 1] == b"\1"
        if not isinstance(argument, int) or not written:
            raise Broken(f"memo {argument} is read and was never written")
        return self._memo.get(argument, UNSEEN)

    def _persistent(self, identity: object) -> object:
        self.scan.persistent_ids += 1
        match identity:
            case ("storage", Global(name), str(key), str(), int(count), *_):
                storage = Storage(key, _STORAGES.get(name), count)
                if self._keep(storage) is storage:
                    self.scan.storages.setdefault(key, storage)
                return storage
            case _:
                return UNSEEN

    def _label(self, pairs: list[object]) -> None:
        if len(pairs) % 2:
            raise Broken("a key of a dict has no value")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if isinstance(value, Storage) and isinstance(key, (str, int)):
                self.scan.labels.setdefault(value.key, f"{key}"[:200])

    def _call(self, function: object, arguments: object) -> object:
        """If the call rebuilds a tensor, return the tensor's storage. Otherwise return `UNSEEN`.

        From the storage, `_label` can record the name that the pickle gives the tensor.
        """
        if not isinstance(arguments, tuple):
            return UNSEEN
        if isinstance(function, Global) and function.name.startswith(
            "torch._utils._rebuild_tensor"
        ):
            _check_reach(arguments)
            expected = _REBUILD_ARGUMENTS.get(function.name, 0)
            if self._room > 0 and len(arguments) < expected:
                raise Broken(f"{function.name} lacks arguments: {len(arguments)} of {expected}")
        for argument in arguments:
            if isinstance(argument, Storage):
                return argument
            if isinstance(argument, tuple) and argument and isinstance(argument[0], Storage):
                return argument[0]
        return UNSEEN


def _check_reach(arguments: tuple[object, ...]) -> None:
    """Check that the last element of the tensor is inside its storage.

    Raises:
        Broken: the element is outside. torch would refuse it as well.
    """
    match arguments:
        case (Storage() as storage, int(offset), tuple(sizes), tuple(strides), *_):
            pass
        case _:
            return
    if storage.dtype in (None, "BYTES") or len(sizes) != len(strides):
        return
    last = offset
    for size, stride in zip(sizes, strides, strict=True):
        if not isinstance(size, int) or not isinstance(stride, int):
            return
        if size == 0:
            return
        last += (size - 1) * stride
    if not 0 <= last < storage.count:
        raise Broken(
            f"a tensor reaches value {last:,} of storage {storage.key}, which has {storage.count:,}"
        )
