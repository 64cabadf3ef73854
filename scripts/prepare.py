#!/usr/bin/env python3
"""Makes a Python environment on a rented box from what the work tree asks for, on top of the image's own.

It needs Python 3.7 and nothing else. The image's torch, CUDA and the like stay as they are: the
environment sees them, and pins of what the image has are held back.

    prepare.py look REQUEST       what would be installed, and whether it is: changes nothing
    prepare.py install REQUEST    it is installed; what happens is told on stdout

REQUEST is one JSON object, or the path of a file that holds it: {"directory": "t"} and, where wanted,
"source": "requirements.txt", "clone": {"url": ..., "ref": ...}, "python": "/opt/conda/bin/python3".
`directory` is below the login home and has work/ (the tree) and caretaker/ (records); the environment
is made in .venv/ there, out of the tree's way, with its record in .venv/prepared.json.
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import namedtuple

STATUSES = {  # what the exit status of `install` means
    "NO_SOURCE": 10,
    "NO_PYTHON": 11,
    "NO_VENV": 12,
    "NOT_RESOLVED": 13,
    "DISK_FULL": 14,
    "NOT_CLONED": 15,
    "SECRET": 16,
    "SHADOWED": 17,
    "NOT_TAKEN": 18,
    "NOTHING": 19,
}
FRAMEWORK = re.compile(
    r"(torch|torchvision|torchaudio|torchtext|pytorch-triton|triton|xformers|jax|jaxlib|jax-cuda.*"
    r"|tensorflow|tensorflow-cpu|tensorflow-gpu|nvidia-(?!ml-py).*)"
).fullmatch
LOADERS = {"torch", "jax", "jaxlib", "tensorflow"}
INDEX_OPTION = re.compile(
    r"(-i|-f|--(index-url|extra-index-url|no-index|find-links|trusted-host|pre|prefer-binary"
    r"|no-binary|only-binary))\b"
)
SECRET = re.compile(r"://(?![^/\s@]*\$\{)([^/\s:@]*:[^/\s@]+|[^/\s:@]{16,})@")
LITTLE_BYTES = 8 << 20
KEPT_LINES = 200
PROBE = r"""
import importlib.util, json, os, re, sys, sysconfig
found = {}
for place in sys.path:
    try:
        names = os.listdir(place or ".")
    except OSError:
        continue
    for name in names:
        told = re.match(r"([A-Za-z0-9._]+?)-([^-]+)(-py[\d.]+)?\.(dist|egg)-info$", name)
        if told:
            found.setdefault(re.sub(r"[-_.]+", "-", told.group(1)).lower(), told.group(2))
def has(name):
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None
for name in ("torch", "jax", "tensorflow"):
    if name not in found and has(name):
        found[name] = "unknown"
paths = sysconfig.get_paths()
print(json.dumps({
    "executable": sys.executable, "version": "%d.%d.%d" % sys.version_info[:3], "found": found,
    "inner": sys.prefix != sys.base_prefix, "site": sorted({paths["purelib"], paths["platlib"]}),
    "venv": has("venv"), "pip": has("pip"),
}))
"""
TOML = """
import json, sys
try:
    import tomllib
except ImportError:
    try:
        import tomli as tomllib
    except ImportError:
        from pip._vendor import tomli as tomllib
with open(sys.argv[1], "rb") as file:
    print(json.dumps(tomllib.load(file), default=str))
"""

Python = namedtuple("Python", "executable version image inner site venv pip")
Plan = namedtuple("Plan", "kind name lines constraints digest notes")


class Failure(Exception):
    """The environment is not there; `code` says why to a program and the message to a person."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Place:
    """Where everything of one lease lies on this box."""

    def __init__(self, request: dict) -> None:
        self.home = os.path.realpath(os.path.expanduser("~"))
        self.directory = os.path.join(self.home, request["directory"])
        self.work = os.path.join(self.directory, "work")
        self.environment = os.path.join(self.directory, ".venv")
        self.records = os.path.join(self.directory, "caretaker")
        self.python = os.path.join(self.environment, "bin", "python")
        self.scratch = os.path.join(self.environment, "scratch")
        self.record = os.path.join(self.environment, "prepared.json")
        self.clone = os.path.join(self.records, "cloned.json")


def look(request: dict) -> dict:
    """What is there, and whether it is what `request` asks for now."""
    place = Place(request)
    if request.get("clone") and (_held(place.clone) or {}).get("commit") is None:
        return {"key": None, "record": None}
    python = find_python(request.get("python"))
    plan = planned(place, request, python)
    key, record = _key(plan, python, request), _held(place.record)
    same = record is not None and record["key"] == key and os.path.exists(place.python)
    return {"key": key, "record": record if same else None}


def install(request: dict) -> dict:
    """The environment is there, as `request` asks for it now, and on record."""
    place, began_at = Place(request), time.time()
    commit = cloned(place, request) if request.get("clone") else None
    python = find_python(request.get("python"))
    plan = planned(place, request, python)
    key, record = _key(plan, python, request), _held(place.record)
    if record is not None and record["key"] == key and os.path.exists(place.python):
        return record
    before = _files_below(place.work)
    uv = shutil.which("uv")
    make_environment(place, python, uv)
    if plan.kind == "uv.lock":
        uv, plan = _of_uv_lock(place, plan, uv)
    lines, held = _without_held(plan.lines, python.image)
    constraints, _ = _without_held(plan.constraints, python.image)
    for line in held:
        print("held back, as the image has its own: " + line, flush=True)
    limited = _install(place, plan, lines, constraints, python.image, uv)
    inner = _probe(place.python)
    for site in inner.site if inner else []:
        own = _names_in(site)
        shadows = sorted(name for name in own if is_held(name, python.image))
        if shadows:
            raise Failure(
                "SHADOWED",
                "this would stand before the image's own: "
                + ", ".join("%s %s" % (n, own[n]) for n in shadows),
            )
    account(place, request, _files_below(place.work) - before)
    record = {
        "key": key,
        "source": plan.name,
        "asked": {n: request.get(n) for n in ("source", "clone", "env_names")},
        "replayed": (request.get("replay") or {}).get("lease"),
        "commit": commit,
        "environment": place.environment,
        "python": python.executable,
        "python_version": python.version,
        "installer": "uv" if uv else "pip",
        "image": python.image,
        "held": held,
        "options": [_portable(x, place) for x in plan.lines if INDEX_OPTION.match(x)],
        "freeze": _frozen(place, inner),
        "notes": plan.notes + ([] if limited else _conflicts(place, python.image, inner)),
        "began_at": began_at,
        "ended_at": time.time(),
    }
    shutil.rmtree(place.scratch, ignore_errors=True)
    temporary = place.record + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, place.record)
    return record


# --- what is to be installed --------------------------------------------------------------------


def planned(place: Place, request: dict, python: Python) -> Plan:
    """What the tree, or the record that is replayed, asks for.

    Raises:
        Failure: NO_SOURCE, SECRET.
    """
    replay = request.get("replay")
    if replay:
        lines = [_here(line, place) for line in replay["options"] + replay["freeze"]]
        gone = sorted(set(replay["image"]) - set(python.image))
        notes = ["%s was the image's own there, and this image has none" % n for n in gone]
        name = "the record of %s" % replay["lease"]
        return Plan("replay", name, lines, [], _digest(lines), notes)
    path, extras = _chosen(place.work, request.get("source"))
    name = os.path.relpath(path, place.work)
    with open(path, "rb") as file:
        content = file.read()
    kind = os.path.basename(path)
    if kind == "uv.lock":
        return Plan("uv.lock", name, [], [], _digest([content.decode("utf-8", "replace")]), [])
    if kind == "pyproject.toml":
        lines, constraints = _of_pyproject(path, extras, python), []
    else:
        kind, constraints = "requirements", []
        lines = _flat(path, place.work, constraints, set())
    told = next((x for x in lines + constraints if SECRET.search(x)), None)
    if told is not None:
        raise Failure("SECRET", "%s holds a password: %s" % (name, SECRET.sub("://...@", told)))
    local = [_digest_of(x) for x in map(_file_in, lines) if x]
    return Plan(kind, name, lines, constraints, _digest(lines + constraints + local), [])


def _chosen(work: str, named: str | None) -> tuple[str, list[str]]:
    told = re.fullmatch(r"(.*?)(?:\[([^\]]*)\])?", named or "")
    extras = [x.strip() for x in (told.group(2) or "").split(",") if x.strip()] if told else []
    if named and told:
        path = os.path.realpath(os.path.join(work, told.group(1)))
        if not path.startswith(os.path.realpath(work) + os.sep) or not os.path.isfile(path):
            raise Failure("NO_SOURCE", "there is no file %s in the work directory" % told.group(1))
        return path, extras
    for name in ("uv.lock", "requirements.lock", "requirements.txt"):
        if os.path.isfile(os.path.join(work, name)):
            return os.path.join(work, name), []
    several = sorted(glob.glob(os.path.join(glob.escape(work), "requirements*.txt")))
    if len(several) > 1:
        names = ", ".join(map(os.path.basename, several))
        raise Failure("NO_SOURCE", "which of these is meant? " + names)
    for path in [*several, os.path.join(work, "pyproject.toml")]:
        if os.path.isfile(path):
            return path, []
    raise Failure(
        "NOTHING",
        "the work directory has no uv.lock, no requirements*.txt and no pyproject.toml",
    )


def _flat(path: str, work: str, constraints: list[str], seen: set[str]) -> list[str]:
    """The file's requirements, those of the files it names included, with local paths made absolute."""
    path = os.path.realpath(path)
    if path in seen:
        return []
    seen.add(path)
    try:
        with open(path, "rb") as file:
            text = _decoded(file.read()).replace("\\\r\n", " ").replace("\\\n", " ")
    except OSError as error:
        raise Failure("NO_SOURCE", "%s: %s" % (path, error.strerror)) from None
    here, lines = os.path.dirname(path), []
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        other = re.match(r"(-r|-c|--requirement|--constraint)[\s=]*(\S+)$", line)
        links = re.match(r"(-f|--find-links)[\s=]+(\S+)$", line)
        local = re.match(r"((?:-e|--editable)[\s=]+)?(\.{0,2}/?[^\s\[;]*)(.*)$", line)
        if other and "://" not in other.group(2):
            inner = _flat(os.path.join(here, other.group(2)), work, constraints, seen)
            if other.group(1) in ("-c", "--constraint"):
                constraints += inner
            else:
                lines += inner
        elif links and os.path.exists(os.path.join(here, links.group(2))):
            lines.append("--find-links " + os.path.abspath(os.path.join(here, links.group(2))))
        elif local and _is_local(work, local):
            at = os.path.abspath(os.path.join(work, local.group(2)))
            lines.append((local.group(1) or "") + at + local.group(3))
        else:
            _refuse_a_path_of_another_computer(line, os.path.relpath(path, work))
            lines.append(line)
    return lines


def _decoded(content: bytes) -> str:
    """Decode a requirements file as pip does: by its byte order mark, or else as UTF-8. PowerShell writes UTF-16."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(encoding, "replace").lstrip("\ufeff")
    return content.decode("utf-8", "replace")


def _refuse_a_path_of_another_computer(line: str, name: str) -> None:
    told = re.search(r"(?:^|@\s*|\s)(?:file://)?(/[^\s;#]+)$", line.split(" ;")[0])
    if told and not line.startswith(("-i ", "--")) and not os.path.exists(told.group(1)):
        raise Failure(
            "NO_SOURCE",
            "%s asks for %s, a path of another computer, as conda writes it; `pip list --format=freeze`"
            " writes versions instead" % (name, told.group(1)),
        )


def _is_local(work: str, told: re.Match[str]) -> bool:
    """Whether a requirement is a path: a bare word is a package's name unless it is an archive."""
    path = told.group(2)
    looks_so = told.group(1) or path.startswith((".", "/")) or path.endswith((".whl", ".tar.gz"))
    return bool(looks_so and path and os.path.exists(os.path.join(work, path)))


def _of_pyproject(path: str, extras: list[str], python: Python) -> list[str]:
    read = subprocess.run(
        [python.executable, "-c", TOML, path],
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    if read.returncode:
        why = read.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["?"]
        raise Failure("NO_SOURCE", "pyproject.toml cannot be read: %s" % why[0])
    project = json.loads(read.stdout.decode()).get("project")
    if not isinstance(project, dict) or "dependencies" in project.get("dynamic", []):
        raise Failure(
            "NO_SOURCE",
            "pyproject.toml does not list its dependencies under [project]; export them to a"
            " requirements file",
        )
    optional, lines = (
        project.get("optional-dependencies", {}),
        list(project.get("dependencies", [])),
    )
    for extra in extras:
        if extra not in optional:
            known = ", ".join(sorted(optional)) or "none"
            raise Failure("NO_SOURCE", "there is no extra %s (known: %s)" % (extra, known))
        lines += optional[extra]
    return lines


def _of_uv_lock(place: Place, plan: Plan, uv: str | None) -> tuple[str, Plan]:
    """What the lock pins, with hashes; only uv can read it for this platform."""
    if uv is None:
        _run(
            [*_pip(place), "install", "uv"],
            place,
            "uv.lock needs uv, and it could not be installed here",
        )
        uv = os.path.join(place.environment, "bin", "uv")
    exported = os.path.join(place.scratch, "exported.txt")
    _run(
        [
            *(uv, "export", "--frozen", "--no-dev", "--no-emit-project", "--no-header", "--quiet"),
            *("--python", place.python, "-o", exported),
        ],
        place,
        "uv cannot read the lock",
    )
    return uv, plan._replace(lines=_flat(exported, place.work, [], set()))


# --- what is held back --------------------------------------------------------------------------


def canonical(name: str) -> str:
    """A distribution's name as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _family(name: str) -> str:
    return "triton" if name == "pytorch-triton" else re.sub(r"^tensorflow-.*", "tensorflow", name)


def is_held(name: str, image: dict[str, str]) -> bool:
    """Whether a pin of that name would stand before something that the image brings."""
    if not FRAMEWORK(name):
        return False
    if name.startswith(("nvidia-", "jax-cuda")):
        return bool(LOADERS & set(image))
    return _family(name) in map(_family, image)


def _name_of(line: str) -> str | None:
    if line.startswith("-"):
        return None
    word = re.split(r"[\s;#]", line, maxsplit=1)[0]
    if word.endswith(".whl"):
        return canonical(os.path.basename(word).split("-")[0])
    told = re.match(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?=\s*(?:[\[@<>=!~;]|$|\s))", line)
    return canonical(told.group()) if told else None


def _without_held(lines: list[str], image: dict[str, str]) -> tuple[list[str], list[str]]:
    kept, held = [], []
    for line in lines:
        name = _name_of(line)
        if name is not None and is_held(name, image):
            version = image.get(name) or "its own build"
            held.append("%s (image: %s)" % (re.sub(r"\s*--hash=\S+", "", line), version))
        else:
            kept.append(line)
    return kept, held


# --- the interpreter and the environment --------------------------------------------------------


def find_python(named: str | None) -> Python:
    """The first interpreter that has a framework, or else the first there is.

    Raises:
        Failure: NO_PYTHON.
    """
    wanted = [
        named,
        shutil.which("python3"),
        "/root/miniconda3/bin/python3",
        "/opt/conda/bin/python3",
    ]
    found = [p for p in map(_probe, dict.fromkeys(w for w in wanted if w)) if p]
    if not found:
        raise Failure(
            "NO_PYTHON", "no python3 runs here (looked at %s)" % ", ".join(filter(None, wanted))
        )
    return next((python for python in found if LOADERS & set(python.image)), found[0])


def _probe(executable: str) -> Python | None:
    try:
        ran = subprocess.run(
            [executable, "-c", PROBE],
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        told = json.loads(ran.stdout.decode().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None
    image = {name: version for name, version in sorted(told["found"].items()) if FRAMEWORK(name)}
    return Python(
        told["executable"],
        told["version"],
        image,
        told["inner"],
        told["site"],
        told["venv"],
        told["pip"],
    )


def make_environment(place: Place, python: Python, uv: str | None) -> None:
    """An empty environment is there that sees all that the image's interpreter sees.

    Raises:
        Failure: NO_VENV, DISK_FULL.
    """
    if os.path.islink(place.environment):
        raise Failure("NO_VENV", place.environment + " is a link; take it away")
    shutil.rmtree(place.environment, ignore_errors=True)
    words = "%s (%s) cannot make an environment" % (python.executable, python.version)
    if uv:
        making = [
            uv,
            "venv",
            "--system-site-packages",
            "--python",
            python.executable,
            place.environment,
        ]
    elif python.venv:
        # Without ensurepip, which a Debian without python3-venv lacks: the image's own pip serves.
        making = [python.executable, "-m", "venv", "--system-site-packages", "--without-pip"]
        making.append(place.environment)
    else:
        raise Failure("NO_VENV", "%s has no venv module" % python.executable)
    os.makedirs(place.directory, exist_ok=True)
    _run(making, place, words, code="NO_VENV")
    os.makedirs(place.scratch, exist_ok=True)
    inner = _probe(place.python)
    if inner is None:
        raise Failure("NO_VENV", words + ": what it made does not run")
    beyond = list(python.site) if python.inner else []
    if os.path.isfile(os.path.join(place.work, "pyproject.toml")):
        # The project itself is imported from the tree: what is pushed next counts at once.
        source = os.path.join(place.work, "src")
        beyond += [source] if os.path.isdir(source) else [place.work]
    if beyond:
        with open(os.path.join(inner.site[0], "_image.pth"), "w", encoding="utf-8") as file:
            file.write("\n".join(beyond) + "\n")
    if not uv and not inner.pip:
        _run([place.python, "-m", "ensurepip"], place, "there is no pip", code="NO_VENV")
    pip = os.path.join(place.environment, "bin", "pip")
    if not os.path.exists(pip):
        # Else a job's own `pip install` would be the image's, and change the image.
        with open(pip, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n')
        os.chmod(pip, 0o700)


def _pip(place: Place) -> list[str]:
    return [place.python, "-m", "pip"]


def _install(
    place: Place,
    plan: Plan,
    lines: list[str],
    constraints: list[str],
    image: dict[str, str],
    uv: str | None,
) -> bool:
    """The packages are there; whether the resolver saw what the image has, and agreed."""
    # A lock is whole: what is not in it is not wanted, and what was held back must not come again.
    closed = plan.kind in ("uv.lock", "replay") or any("--hash=" in line for line in lines)
    wanted = _scratch(place, "wanted.txt", lines)
    if not [line for line in lines if not INDEX_OPTION.match(line)]:
        return True
    if uv:
        # uv does not see what the image has: each of it is taken out of every package's wishes.
        never = ["%s ; sys_platform == 'never'" % name for name in image]
        argv = [uv, "pip", "install", "--python", place.python, "-r", wanted]
        argv += ["--overrides", _scratch(place, "never.txt", never)] if never and not closed else []
    else:
        constraints = constraints + [
            "%s==%s" % (name, version) for name, version in image.items() if version != "unknown"
        ]
        argv = [*_pip(place), "install", "--progress-bar", "off", "-r", wanted]
    argv += ["-c", _scratch(place, "limits.txt", constraints)] if constraints and not closed else []
    _run([*argv, "--no-deps"] if closed else argv, place, "the packages could not be installed")
    return not (uv or closed)


def _scratch(place: Place, name: str, lines: list[str]) -> str:
    path = os.path.join(place.scratch, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
    return path


def _surroundings(place: Place) -> dict[str, str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if name
        not in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "CONDA_PREFIX")
    }
    env.update(
        PIP_USER="0",
        PIP_NO_INPUT="1",
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        UV_PYTHON_DOWNLOADS="never",
        UV_NO_PROGRESS="1",
        GIT_TERMINAL_PROMPT="0",
        VIRTUAL_ENV=place.environment,
    )
    if os.path.isdir(place.scratch):
        env["TMPDIR"] = place.scratch
    # uv heeds none of pip's settings, and an image may have its mirror there.
    for name in ("INDEX_URL", "EXTRA_INDEX_URL"):
        if os.environ.get("PIP_" + name):
            env.setdefault("UV_" + name, os.environ["PIP_" + name])
    return env


def _run(
    argv: list[str], place: Place, failure: str, code: str = "NOT_RESOLVED", cwd: str = ""
) -> None:
    """The command has ended well; what it said is on our stdout."""
    print("$ " + " ".join(argv), flush=True)
    said: list[str] = []
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd or (place.work if os.path.isdir(place.work) else place.home),
            env=_surroundings(place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise Failure(code, "%s: %s: %s" % (failure, argv[0], error.strerror)) from None
    with process:
        assert process.stdout is not None
        for raw in process.stdout:
            os.write(1, raw)
            said = [*said[-KEPT_LINES:], raw.decode("utf-8", "replace")]
    if process.returncode:
        room = os.statvfs(place.directory)
        full = room.f_bavail * room.f_frsize < LITTLE_BYTES or (room.f_files and not room.f_favail)
        if full or any("No space left" in line or "Disk quota exceeded" in line for line in said):
            raise Failure("DISK_FULL", failure + ": the disk is full")
        raise Failure(code, failure)


# --- the clone, and what is on record -----------------------------------------------------------


def cloned(place: Place, request: dict) -> str:
    """The commit that lies in the work directory, cloned now or before.

    Raises:
        Failure: NOT_CLONED.
    """
    asked = request["clone"]
    known = _held(place.clone)
    same = known is not None and (known["url"], known["ref"]) == (asked["url"], asked["ref"])
    if same and known and known["commit"]:
        return str(known["commit"])
    if not same and (known or _files_below(place.work)):
        raise Failure("NOT_CLONED", "the work directory already holds other files")
    if shutil.which("git") is None:
        raise Failure("NOT_CLONED", "there is no git on this box")
    _keep(place.clone, dict(asked, commit=None))
    target = os.path.join(place.environment, "clone")
    shutil.rmtree(place.environment, ignore_errors=True)
    os.makedirs(target)
    os.makedirs(place.work, exist_ok=True)
    for argv in (
        ["init", "--quiet"],
        ["remote", "add", "origin", asked["url"]],
        ["fetch", "--quiet", "--depth", "1", "origin", asked["ref"] or "HEAD"],
        ["-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD"],
        ["submodule", "--quiet", "update", "--init", "--recursive", "--depth", "1"],
    ):
        _run(["git", *argv], place, "the clone failed", code="NOT_CLONED", cwd=target)
    told = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=target)
    commit = told.decode().strip()
    # git takes a repository without its empty directories for none.
    inner = {os.path.relpath(at, target) for at, _, _ in os.walk(target)} - {"."}
    account(place, request, _files_below(target) | inner, top=target)
    _keep(place.clone, dict(asked, commit=commit))
    shutil.rmtree(target)
    return commit


def account(place: Place, request: dict, names: set[str], top: str = "") -> None:
    """Those files lie in the work directory, and count as pushed for as long as they stay as they are."""
    if not names or not request.get("caretaker"):
        return
    argv = [sys.executable, "-I", "-S", os.path.join(place.home, request["caretaker"])]
    argv += ["--home", place.records, "receive", "--request", "-"]
    process = subprocess.Popen(argv, cwd=place.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    work = json.dumps({"work": os.path.join(request["directory"], "work")})
    process.stdin.write(work.encode() + b"\n")
    with tarfile.open(
        fileobj=process.stdin,
        mode="w|",
        format=tarfile.PAX_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        for name in sorted(names):
            archive.add(os.path.join(top or place.work, name), name, recursive=False)
    reply = process.communicate()[0]
    if process.returncode:
        raise Failure(
            "NOT_TAKEN", "the files were not put on record: " + reply.decode("utf-8", "replace")
        )


def _files_below(top: str) -> set[str]:
    """Every file and link below `top`, by its path from there."""
    found = set()
    for directory, inner, files in os.walk(top):
        links = [name for name in inner if os.path.islink(os.path.join(directory, name))]
        found.update(os.path.relpath(os.path.join(directory, n), top) for n in files + links)
    return found


def _held(path: str) -> dict | None:
    """The record at `path`; what cannot be read is made anew."""
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _keep(path: str, record: dict) -> None:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(path + ".new", path)


def _frozen(place: Place, inner: Python | None) -> list[str]:
    """What the environment itself holds, as requirements, without what it sees of the image."""
    lines = []
    for site in inner.site if inner else []:
        for name in sorted(os.listdir(site)):
            told = re.match(r"([\w.]+?)-([^-]+)\.dist-info$", name)
            if told:
                origin = _held(os.path.join(site, name, "direct_url.json"))
                lines.append(_requirement(canonical(told.group(1)), told.group(2), origin, place))
    return lines


def _requirement(name: str, version: str, origin: dict | None, place: Place) -> str:
    if origin is None:
        return name + "==" + version
    url = re.sub(r"://[^/\s@]+@", "://", origin["url"])
    if origin.get("dir_info", {}).get("editable"):
        return "-e " + _portable(url.replace("file://", "", 1), place)
    if "vcs_info" in origin:
        url = "%s+%s@%s" % (origin["vcs_info"]["vcs"], url, origin["vcs_info"]["commit_id"])
    return _portable("%s @ %s" % (name, url), place)


def _conflicts(place: Place, image: dict[str, str], inner: Python | None) -> list[str]:
    """What pip says of packages that would like another build of what the image has."""
    if not image or inner is None or not inner.pip:
        return []
    told = subprocess.run(
        [*_pip(place), "check"],
        cwd="/",
        env=_surroundings(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    names = re.compile(r"(?<![\w-])(%s)(?![\w-])" % "|".join(map(re.escape, image)), re.IGNORECASE)
    said = told.stdout.decode("utf-8", "replace").splitlines() if told.returncode else []
    return [line for line in said if names.search(line)][:10]


def _portable(line: str, place: Place) -> str:
    return line.replace(place.work, "{work}")


def _here(line: str, place: Place) -> str:
    return line.replace("{work}", place.work)


def _key(plan: Plan, python: Python, request: dict) -> str:
    parts = [plan.kind, plan.name, plan.digest, python.executable, python.version]
    return _digest([*parts, json.dumps(python.image), json.dumps(request.get("env_names"))])


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _file_in(line: str) -> str | None:
    path = re.split(r"[\s;\[]", line, maxsplit=1)[0]
    return path if path.startswith("/") and os.path.isfile(path) else None


def _names_in(site: str) -> dict[str, str]:
    told = (re.match(r"([\w.]+?)-([^-]+)\.dist-info$", n) for n in os.listdir(site))
    return {canonical(match.group(1)): match.group(2) for match in told if match}


def main(argv: list[str]) -> int:
    """The exit status; `look` answers with one JSON object on stdout."""
    if len(argv) != 2 or argv[0] not in ("look", "install"):
        print(__doc__, file=sys.stderr)
        return 2
    text = argv[1]
    if not text.lstrip().startswith("{"):
        with open(text, encoding="utf-8") as file:
            text = file.read()
    request = json.loads(text)
    try:
        answer = look(request) if argv[0] == "look" else install(request)
    except (Failure, OSError) as error:
        full = isinstance(error, OSError) and error.errno in (28, 122)
        code = getattr(error, "code", "DISK_FULL" if full else "NOT_RESOLVED")
        if argv[0] == "look":
            print(json.dumps({"ok": False, "code": code, "message": str(error)}))
            return 0
        print("prepare: %s: %s" % (code, error), flush=True)
        return STATUSES[code]
    if argv[0] == "look":
        print(json.dumps(dict(answer, ok=True)))
    else:
        count = len(answer["freeze"])
        print("prepared: %d packages in %s" % (count, answer["environment"]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
