"""Finds files that look like secrets, by their name and by the first bytes of their content.

We do not use a library: detect-secrets starts slowly and was last released in 2024. Our scan only has to refuse
files, and the owner can allow a file by its name.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

MAX_REASONS = 5
_LOOKED_BYTES = 512
"""The encoding is guessed from so many bytes."""

_KEY_NAMES = frozenset(
    f"id_{kind}" for kind in ("rsa", "dsa", "ecdsa", "ed25519", "ecdsa_sk", "ed25519_sk")
)
_KEY_STORES = (".ppk", ".p12", ".pfx", ".jks", ".keystore", ".kdbx")
_ENV_SAMPLES = frozenset(("example", "sample", "template", "dist"))
_TERRAFORM_STATES = (".tfstate", ".tfstate.backup")
_CREDENTIAL_NAMES = frozenset(
    (
        ".netrc",
        "_netrc",
        ".pgpass",
        ".git-credentials",
        ".vault-token",
        ".vast_api_key",
        "vast_api_key",
        "kaggle.json",
        "application_default_credentials.json",
        "cookies.txt",
        "cookies.sqlite",
        "cookies",
    )
)
_CREDENTIAL_PATHS = (
    (".aws", "credentials"),
    ("huggingface", "token"),
    (".huggingface", "token"),
    (".docker", "config.json"),
    (".kube", "config"),
    ("gh", "hosts.yml"),
)

_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\r|\\n)+"
    r"(?:[A-Za-z-]+: [^\n]*\n\s*)*[A-Za-z0-9+/=]{24}"
)
_SERVICE_ACCOUNT = tuple(
    re.compile(rf'"{field}"\s*:\s*"[^"]{{8}}') for field in ("private_key", "client_email")
)

# Each pattern begins with fixed letters of its own, which keeps the scan fast.
_SHAPES = tuple(
    (kind, re.compile(shape))
    for kind, shape in (
        ("an AWS access key", r"A(?:KIA|SIA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
        ("a GitHub token", r"gh[pousr]_[0-9A-Za-z]{36}"),
        ("a GitHub token", r"github_pat_[0-9A-Za-z_]{40,}"),
        ("a GitLab token", r"glpat-[0-9A-Za-z_-]{20}"),
        ("a Hugging Face token", r"hf_[0-9A-Za-z]{30,}"),
        ("an Anthropic key", r"sk-ant-[0-9A-Za-z_-]{24,}"),
        (
            "an OpenAI-style key",
            r"sk-(?!ant-)(?:proj-|svcacct-|or-v1-)?(?=[0-9A-Za-z_-]*\d)[0-9A-Za-z_-]{32,}",
        ),
        ("a Slack token", r"xox[abpors]-[0-9A-Za-z-]{20,}"),
        ("a Google API key", r"AIza[0-9A-Za-z_-]{35}"),
        ("a SendGrid key", r"SG\.[0-9A-Za-z_-]{20,}\.[0-9A-Za-z_-]{20,}"),
        ("an npm token", r"npm_[0-9A-Za-z]{36}"),
        ("a PyPI token", r"pypi-AgEI[0-9A-Za-z_-]{40,}"),
        ("a RunPod key", r"rpa_[0-9A-Z]{24,}"),
        ("a DigitalOcean token", r"do[opr]_v1_[0-9a-f]{64}"),
        ("a Stripe key", r"[rs]k_live_[0-9A-Za-z]{20,}"),
        ("an Azure storage key", r"AccountKey=[0-9A-Za-z+/]{40,}={0,2}"),
        ("an Azure access key", r"SharedAccessKey=[0-9A-Za-z+/]{40,}={0,2}"),
    )
)
_WANDB = re.compile(r"wandb[^\n]{0,24}?(?:key|login|token)[^\n]{0,12}?\b([0-9a-f]{40})\b", re.I)
_BEARER = re.compile(r"bearer +([\w.~+/=-]{20,})", re.IGNORECASE)
_NETRC = re.compile(
    r"\b(?:machine\s{1,9}\S{1,256}|default)\s{1,9}(?:(?:login|account)\s{1,9}\S{1,256}\s{1,9}){0,2}"
    r"password\s{1,9}(\S{6,256})"
)
_URL = re.compile(r"://[^/\s:@\"'<>]{0,64}:([^@/\s\"'<>]{6,128})@[\w.-]")

_STEM = re.compile("api_?-?key|access_?-?key|secret|token|passw|_key")
_BEFORE = re.compile(r"[\w.-]*\Z")
_ASSIGNED = re.compile(
    r"(?P<rest>[\w.-]{0,40}+)[\"'`]?\]?\s{0,4}(?:=>|:=|[:=])\s{0,4}(?:\{\s{0,40}\"value\"\s{0,4}:\s{0,4})?"
    r"(?P<quote>[\"'`]?)(?P<value>[^\s\"'`,;)}]{8,2000})"
)
_VARIABLE = re.compile(
    r"(?m)^(?:export[ \t]{1,4})?(?P<name>[A-Z0-9_]{0,60}_(?:KEY|TOKEN|SECRET))=[\"']?(?P<value>[^\s\"'`,;)}]{8,2000})"
)
"""A line as in a file of variables. Such a value need not look random."""
_NOT_A_VALUE_NAME = re.compile(
    r"tokens|tokenizer|token_(?:id|type|class|count|len)|_?(?:file|path|url|uri|name|env|var|hash"
    r"|sha\d*|digest|type|len|length|size|count|ids?|dir|format|prefix|field|header|ref|expiry)$"
    r"|continuation|request_?token|next_?token|page_?token|csrf|last_?used"
    r"|public|primary_key|foreign_key|hot_?key|sort_key|cache_key|state_key",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"example|your|placeholder|change.?me|dummy|sample|redacted|replace|insert|fake|todo|xxxx|\.\.\."
    r"|\*\*\*|secret.?(?:here|key)|password|getenv|environ|process\.env|secrets\.|vault:|0123456789"
    r"|1234567890|123456789|abcdefgh|[<>{}()\[\]$]|%[a-z(]",
    re.IGNORECASE,
)


def find_secrets(name: str, content_head: bytes) -> tuple[str, ...]:
    """Return the reasons why the file looks like a secret, without the secret itself. Empty if it does not.

    `name` is the file's path, with forward slashes. A reason shows the length of the value and its first
    characters: at most four, and at most a quarter of the value.
    """
    text = _decode(content_head)
    reasons = dict.fromkeys((*_by_name(PurePosixPath(name), text), *_by_content(text)))
    return tuple(reasons)[:MAX_REASONS]


def _by_name(path: PurePosixPath, text: str) -> Iterator[str]:
    base = path.name.lower()
    if base in _KEY_NAMES:
        yield f"{base} is the name of a private ssh key"
    if path.suffix.lower() in _KEY_STORES:
        yield f"{path.suffix.lower()} files keep private keys"
    words = base.split(".")
    if (words[-1] == "env" or base.startswith(".env.")) and not set(words) & _ENV_SAMPLES:
        yield f"{base} is where programs keep their secrets"
    if base.endswith(_TERRAFORM_STATES):
        yield f"{base} is a state of Terraform, which has every secret in plain text"
    if base in _CREDENTIAL_NAMES or path.parts[-2:] in _CREDENTIAL_PATHS:
        yield f"{base} is a file of credentials"
    if base == ".npmrc" and re.search(r"_(?:authToken|auth|password)\s*=\s*[^\s$]", text):
        yield ".npmrc holds a registry login"
    if base == ".pypirc" and re.search(r"(?m)^\s*password\s*[:=]\s*\S", text):
        yield ".pypirc holds a registry login"


def _by_content(text: str) -> Iterator[str]:
    if "PRIVATE KEY" in text and (match := _PRIVATE_KEY.search(text)):
        yield f"a private key on line {_line(text, match.start())}"
    if all(field.search(text) for field in _SERVICE_ACCOUNT):
        yield "a service account with its private key"
    for kind, shape in _SHAPES:
        for match in shape.finditer(text):
            in_a_word = text[match.start() - 1 : match.start()].isalnum()
            if not in_a_word and not _is_placeholder(match[0]):
                yield _reason(kind, text, match.start(), match[0])
                break
    lowered = text.lower()
    if "wandb" in lowered and (match := _WANDB.search(text)) and not _is_placeholder(match[1]):
        yield _reason("a Weights & Biases key", text, match.start(1), match[1])
    if "bearer" in lowered:
        for match in _BEARER.finditer(text):
            if _is_random(match[1]):
                yield _reason("a bearer token", text, match.start(1), match[1])
    if "password" in lowered and ("machine" in lowered or "default" in lowered):
        for match in _NETRC.finditer(text):
            if not _is_placeholder(match[1]) and not match[1].isalpha():
                yield _reason("a password in the form of a .netrc", text, match.start(1), match[1])
                break
    for match in _URL.finditer(text):
        if _is_password(match[1]):
            yield _reason("a password in an address", text, match.start(1), match[1])
    found = tuple(_by_assignment(text, lowered))
    yield from found or _by_variable(text)


def _by_assignment(text: str, lowered: str) -> Iterator[str]:
    """Yield a reason for each value that looks random and is assigned to a name such as `api_key`."""
    passed = 0
    for stem in _STEM.finditer(lowered):
        if stem.start() < passed or not (found := _ASSIGNED.match(text, stem.end())):
            continue
        value = found["value"]
        secret = _is_password(value) if stem[0] == "passw" else _is_random(value)
        if not secret or (not found["quote"] and _is_code(value)):
            continue
        before = _BEFORE.search(text, max(0, stem.start() - 40), stem.start())
        name = (before[0] if before else "") + stem[0] + found["rest"]
        if not _NOT_A_VALUE_NAME.search(name):
            kind = f"a value that looks random, given to {name[:60]}"
            yield _reason(kind, text, found.start("value"), value)
            passed = found.end()


def _by_variable(text: str) -> Iterator[str]:
    """Yield a reason for each line `NAME_KEY=`, `NAME_TOKEN=` or `NAME_SECRET=` with a value of letters and digits."""
    for match in _VARIABLE.finditer(text):
        name, value = match["name"], match["value"]
        is_a_path = value.startswith(("/", "./", "~", "@")) or "://" in value
        is_mixed = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
        is_other = is_a_path or _is_code(value) or _NOT_A_VALUE_NAME.search(name)
        if is_mixed and not is_other and not _is_placeholder(value):
            yield _reason(f"a value given to {name}", text, match.start("value"), value)


def _is_random(value: str) -> bool:
    """Whether the value is a mix of 16 or more letters and digits, and not a word, a path or a placeholder."""
    if len(value) < 16 or _is_placeholder(value) or value.startswith(("/", "./", "~", "@")):
        return False
    if "://" in value or _is_wordlike(value):
        return False
    digits = sum(map(str.isdigit, value))
    letters = sum(map(str.isalpha, value))
    return digits >= 2 and letters >= 2 and _entropy_bits(value) >= 3.0


def _is_password(value: str) -> bool:
    """Whether the value has three of the four kinds of characters, or looks as random as a token."""
    if len(value) < 8 or _is_placeholder(value) or _is_wordlike(value) or value[0] in "/~@.":
        return False
    kinds = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum())
    return sum(any(map(kind, value)) for kind in kinds) >= 3 or _is_random(value)


def _is_wordlike(value: str) -> bool:
    """Whether the value consists of words and small numbers, as an identifier or a version does."""
    parts = [part for part in re.split(r"[^0-9A-Za-z]+", value) if part]
    return all(
        re.fullmatch(r"[a-z]*\d{0,4}|[A-Z]*\d{0,4}|[A-Z][a-z]*\d{0,4}", part) for part in parts
    )


def _is_code(value: str) -> bool:
    """Whether the value is code that looks up the secret, and not the secret itself."""
    return re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", value) is not None


def _is_placeholder(value: str) -> bool:
    return _PLACEHOLDER.search(value) is not None or len(set(value)) < min(8, len(value) // 2 + 1)


def _entropy_bits(value: str) -> float:
    """Return the Shannon entropy in bits for each character."""
    return -sum(n / len(value) * math.log2(n / len(value)) for n in Counter(value).values())


def _reason(kind: str, text: str, start: int, value: str) -> str:
    hint = value[: min(4, len(value) // 4)]
    return f"{kind} on line {_line(text, start)} ({hint}…, {len(value)} characters)"


def _line(text: str, start: int) -> int:
    return text.count("\n", 0, start) + 1


def _decode(content: bytes) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what PowerShell's `>` writes
        return content.decode("utf-16", errors="replace")
    even, odd = content[:_LOOKED_BYTES:2], content[1:_LOOKED_BYTES:2]
    # In UTF-16, every other byte of plain text is zero.
    if odd.count(0) > 0.9 * len(odd) and not even.count(0):
        return content.decode("utf-16-le", errors="replace")
    if even.count(0) > 0.9 * len(even) and not odd.count(0):
        return content.decode("utf-16-be", errors="replace")
    return content.decode("latin-1")
