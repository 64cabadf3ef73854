"""Measures the memory that a training with torch uses, from inside the processes of the smoke test.

The smoke test copies this file as `sitecustomize.py` into a directory on the module path. Python imports it at every
start, before the command. It waits until the command imports torch. Until then it does nothing, and without
torch it writes nothing. It needs only the standard library, and no failure of its own reaches the command.

It does not change the computation: a thread asks the C library how many bytes are in use, and two hooks of
torch's optimizers say when a step begins and ends. Each process that imports torch writes one JSON file, whose name is
the number of the process.
"""

# Only these two are imported at the start. If another module were imported here, the command could no longer import a
# module of the same name from its own tree.
import os
import sys

_EVERY_S = 0.001
_REST = 20
"""After each measurement, the probe rests this many times as long as the measurement took."""
_FIRST, _MOST = 3, 20
"""The first 3 steps are always noted. A later step is noted if it needs more memory than all before, up to 20 steps."""
_OPTIONS = ("foreach", "fused", "weight_decay", "decoupled_weight_decay", "amsgrad", "momentum")


class _Waiting:
    """A module finder that finds nothing itself. It calls `then` as soon as torch has been imported."""

    def __init__(self, then):
        self._then = then

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        others = [each for each in sys.meta_path if each is not self]
        for finder in others:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader):
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            del loader.exec_module
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            execute(module)
            self._then(module)

        try:
            # A traceback from torch's import leaves out the frames of the import system. This makes it leave out this
            # frame as well.
            frozen = sys.modules["_frozen_importlib"]._find_and_load.__code__.co_filename
            exec_module.__code__ = exec_module.__code__.replace(co_filename=frozen)
            loader.exec_module = exec_module
        except AttributeError:
            pass  # This loader accepts no new attribute, so torch cannot be watched.


def _quietly(function):
    """Wrap the function so that its errors do not reach the command. It then returns None."""

    def safe(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception:
            return None

    return safe


class _Memory:
    """How many bytes this process uses, in two numbers: what the C library has given out, and what is resident."""

    def __init__(self):
        self._mallinfo = _mallinfo()
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def now(self):
        used = 0
        if self._mallinfo:
            told = self._mallinfo()
            used = told.in_arenas + told.mapped
        resident = int(os.pread(self._statm, 200, 0).split()[1]) * self._page
        return used, resident


def _mallinfo():
    import ctypes

    class Told(ctypes.Structure):
        _fields_ = [
            (name, ctypes.c_size_t)
            for name in (
                *("arena", "free_chunks", "fast_chunks", "maps", "mapped"),
                *("most", "fast", "in_arenas", "free", "top"),
            )
        ]

    function = getattr(ctypes.CDLL(None), "mallinfo2", None)  # of the GNU C library since 2.33
    if function is not None:
        function.restype = Told
    return function


class _Probe:
    """Measures this process, and writes the result into the directory `where`."""

    def __init__(self, torch, where):
        import time

        self._torch = torch
        self._clock = time.perf_counter
        self._started, self._spent = self._clock(), 0.0
        self._pid = os.getpid()
        self._path = os.path.join(where, "%d.json" % self._pid)
        self._memory = _Memory()
        self._most = self._memory.now()
        self._ends = False
        self._rise = -1
        self._row = None
        self._states = {}
        self._attention = [0, 0]
        self._began = self._kept = 0
        self._told = {
            "torch": str(torch.__version__),
            "steps": 0,
            "autocast": [],
            "windows": [],
            "optimizers": [],
        }

    def begin(self):
        import _thread
        import atexit

        from torch.optim import optimizer

        optimizer.register_optimizer_step_pre_hook(self._before_step)
        optimizer.register_optimizer_step_post_hook(self._after_step)
        self._watch_autocast()
        self._watch_attention()
        atexit.register(self._end)
        _thread.start_new_thread(self._sample, ())

    def _watch_autocast(self):
        from torch.amp import autocast_mode

        enter = autocast_mode.autocast.__enter__
        seen = self._told["autocast"]

        def __enter__(self):
            entered = enter(self)
            try:
                row = [self.device, str(self.fast_dtype), bool(self._enabled)]
                if row not in seen and len(seen) < 8:
                    seen.append(row)
            except Exception:
                pass
            return entered

        __enter__.__wrapped__ = enter
        autocast_mode.autocast.__enter__ = __enter__

    @_quietly
    def _watch_attention(self):
        """Measure what attention with dropout keeps. A GPU keeps much less, because it has special kernels for it."""
        import functools

        import torch
        from torch.jit import _builtins
        from torch.nn import functional

        attend, probe, compiling = functional.scaled_dot_product_attention, self, _compiling(torch)

        @functools.wraps(attend)
        def scaled_dot_product_attention(*args, **kwargs):
            if compiling():
                return attend(*args, **kwargs)
            before = probe._before_attention(args, kwargs)
            out = attend(*args, **kwargs)
            if before:
                probe._after_attention(before, out)
            return out

        _builtins._register_builtin(
            scaled_dot_product_attention, "aten::scaled_dot_product_attention"
        )
        functional.scaled_dot_product_attention = scaled_dot_product_attention

    @_quietly
    def _before_attention(self, args, kwargs):
        dropout = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0)
        query = args[0] if args else kwargs["query"]
        plain = type(query) in (self._torch.Tensor, self._torch.nn.Parameter)
        learns = plain and dropout and query.requires_grad and self._torch.is_grad_enabled()
        return self._level()[0] if learns and self._may_ask() else 0

    @_quietly
    def _after_attention(self, before, out):
        kept = max(0, self._level()[0] - before - out.untyped_storage().nbytes())
        if self._torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
            # If less memory is in use now, a backward pass has freed what was kept before.
            if not self._kept or before < self._began + self._kept:
                self._began, self._kept = before, 0
            self._kept += kept
            self._attention[0] = max(self._attention[0], self._kept)
        else:  # This memory is not kept but computed again later, and only for one call at a time.
            self._attention[1] = max(self._attention[1], kept)

    def _sample(self):
        import time

        now, sleep, clock = self._memory.now, time.sleep, self._clock
        try:
            while not self._ends:
                began = clock()
                self._note(now())
                # If there are very many free pieces of memory, the measurement takes long, and the command waits.
                sleep(max(_EVERY_S, _REST * (clock() - began)))
        except Exception:
            pass

    def _note(self, level):
        most = self._most
        if level[0] > most[0] or level[1] > most[1]:
            self._most = (max(level[0], most[0]), max(level[1], most[1]))

    def _level(self):
        """Return the memory in use. The command waits meanwhile, so the time that this takes is added up."""
        began = self._clock()
        level = self._memory.now()
        self._spent += self._clock() - began
        self._note(level)
        return level

    def _may_ask(self):
        """Whether to measure memory now: always in the first steps, later only if that has cost little time so far."""
        if os.getpid() != self._pid or self._ends:
            return False
        early = len(self._told["windows"]) < _FIRST
        return early or self._spent * _REST < self._clock() - self._started

    @_quietly
    def _before_step(self, optimizer, args, kwargs):
        self._row = None
        if not self._may_ask():
            return
        level = self._level()
        most, rises = self._most, self._most[0] - level[0]
        windows = self._told["windows"]
        if len(windows) < _FIRST or (len(windows) < _MOST and rises > 1.02 * self._rise):
            self._rise = max(self._rise, rises)
            self._row = {"step": self._told["steps"], "most": most, "level": level}
            self._row.update(self._look(optimizer), attention=self._attention)
        self._attention, self._began, self._kept = [0, 0], 0, 0
        self._most = level

    @_quietly
    def _after_step(self, optimizer, args, kwargs):
        row = self._row
        if os.getpid() == self._pid:
            self._told["steps"] += 1
        if row is None or self._ends or os.getpid() != self._pid:
            return
        level = self._level()
        row["step_most"], row["after"], self._most = self._most, level, level
        row["state_after"] = self._state(optimizer)
        self._told["windows"].append(row)
        self._write()

    def _state(self, optimizer):
        """Return the bytes that all optimizers keep between steps. Only those of this one are counted again."""
        found = {}
        for state in optimizer.state.values():
            self._tensors(state, found)
        self._states[id(optimizer)] = _sum(found)
        return sum(self._states.values())

    def _tensors(self, value, found):
        if isinstance(value, self._torch.Tensor):
            _count(found, value)
        elif isinstance(value, dict):
            for each in value.values():
                self._tensors(each, found)
        elif isinstance(value, (list, tuple)):
            for each in value:
                self._tensors(each, found)

    def _look(self, optimizer):
        """Count the bytes of all tensors that Python can see.

        These are parameters, gradients, buffers, the optimizer's state, and what is left of the forward pass.
        """
        import gc

        torch = self._torch
        parameters, gradients, buffers, left = {}, {}, {}, {}
        Tensor, Parameter, Module = torch.Tensor, torch.nn.Parameter, torch.nn.Module
        for group in optimizer.param_groups:
            for p in group["params"]:
                _count(parameters, p, gradients)
        for each in gc.get_objects():
            kind = type(each)
            if issubclass(kind, Parameter):
                _count(parameters, each, gradients)
            elif issubclass(kind, Module):
                for buffer in each._buffers.values():
                    if buffer is not None:
                        _count(buffers, buffer)
            elif issubclass(kind, Tensor) and _learns(each):
                _count(left, each)
        for key in parameters:
            buffers.pop(key, None)
            left.pop(key, None)
        by_kind = {}
        for bytes_, dtype in parameters.values():
            by_kind[dtype] = by_kind.get(dtype, 0) + bytes_
        self._told.update(
            parameters=by_kind,
            buffers=_sum(buffers),
        )
        self._told["gradients"] = max(_sum(gradients), self._told.get("gradients", 0))
        self._note_optimizer(optimizer)
        return {
            "left": _sum(left),
            "gradients": _sum(gradients),
            "state": self._state(optimizer),
        }

    def _note_optimizer(self, optimizer):
        """Note this optimizer's options and the size of its parameters: on a GPU its step is computed differently."""
        groups = []
        for group in optimizer.param_groups:
            sizes = {}
            for p in group["params"]:
                if p.requires_grad:
                    _count(sizes, p)
            kinds = {}
            for bytes_, dtype in sizes.values():
                kinds[dtype] = kinds.get(dtype, 0) + bytes_
            options = {name: group[name] for name in _OPTIONS if name in group}
            options = {name: str(value) for name, value in options.items()}
            groups.append({"bytes": kinds, "options": options})
        kind = type(optimizer)
        row = {"name": "%s.%s" % (kind.__module__, kind.__qualname__), "groups": groups[:64]}
        if row not in self._told["optimizers"] and len(self._told["optimizers"]) < 8:
            self._told["optimizers"].append(row)

    @_quietly
    def _end(self):
        if os.getpid() == self._pid:
            self._ends = True
            self._write()

    def _write(self):
        import json

        self._told["malloc"] = bool(self._memory._mallinfo)
        beside = self._path + ".part"
        with open(beside, "w") as file:
            json.dump(self._told, file)
        os.replace(beside, self._path)


def _compiling(torch):
    """Return torch's function that tells whether code is being compiled now. Compiled code is not measured."""
    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


def _count(found, tensor, gradients=None):
    """Add the memory of the tensor to `found`, and that of its gradient to `gradients`. Shared memory counts once."""
    try:
        storage = tensor.untyped_storage()
        key, bytes_ = storage.data_ptr(), storage.nbytes()
    except Exception:
        return
    if key:
        found[key] = (bytes_, str(tensor.dtype))
    if gradients is not None and tensor.grad is not None:
        _count(gradients, tensor.grad)


def _learns(tensor):
    """Whether the tensor is the result of a computation with gradients, such as an output of the model or a loss."""
    try:
        return tensor.grad_fn is not None
    except Exception:
        return False


def _sum(found):
    return sum(bytes_ for bytes_, _ in found.values())


@_quietly
def _watch(torch):
    _Probe(torch, _HERE).begin()


def _start():
    if sys.platform == "linux":
        sys.meta_path.insert(0, _Waiting(_watch))


def _next_sitecustomize():
    """Run the `sitecustomize` that Python would have found without this one, and leave no other trace."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    mine = sys.modules.pop("sitecustomize", None)
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  (without one this raises what Python expects where there is none)

    del mine


_HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "sitecustomize":
    _quietly(_start)()
    _next_sitecustomize()
