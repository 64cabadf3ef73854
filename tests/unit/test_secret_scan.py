"""What is taken for a secret, and what is not.

No string here looks like a token: each is put together when the test runs.
"""

import random
import string
import time

import pytest

from gpu_tenant.files.secret_scan import find_secrets

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def noise(count: int, alphabet: str = LETTERS) -> str:
    """Disorder of a fixed seed, with digits in it."""
    drawn = random.Random(count).choices(alphabet, k=count)
    drawn[1:12:4] = "739"
    return "".join(drawn)


TOKENS = {
    "an AWS access key": "AK" + "IA" + noise(16, string.ascii_uppercase + string.digits),
    "a GitHub token": "gh" + "p_" + noise(36),
    "a GitHub token, fine-grained": "github" + "_pat_" + noise(82),
    "a GitLab token": "gl" + "pat-" + noise(20),
    "a Hugging Face token": "h" + "f_" + noise(34),
    "an Anthropic key": "sk" + "-ant-" + "api03-" + noise(80),
    "an OpenAI-style key": "sk" + "-" + noise(48),
    "a Slack token": "xo" + "xb-" + noise(12, string.digits) + "-" + noise(24),
    "a Google API key": "AI" + "za" + noise(35),
    "a SendGrid key": "S" + "G." + noise(22) + "." + noise(43),
    "an npm token": "np" + "m_" + noise(36),
    "a PyPI token": "py" + "pi-AgEI" + noise(120),
    "a RunPod key": "rp" + "a_" + noise(40, string.ascii_uppercase + string.digits),
}


@pytest.mark.parametrize("kind", TOKENS)
def test_a_token_of_a_known_shape_is_found_and_not_repeated(kind: str) -> None:
    token = TOKENS[kind]

    (reason,) = find_secrets("notes.txt", f"first line\nsee {token} here\n".encode())

    assert reason.startswith(kind.split(",")[0])
    assert "line 2" in reason
    assert f"{len(token)} characters" in reason
    assert token[:4] in reason
    assert token[5:] not in reason
    assert token[:6] not in reason


@pytest.mark.parametrize(
    "name",
    [
        "id_rsa",
        "keys/id_ed25519",
        "box.ppk",
        "cert.p12",
        "cert.PFX",
        "app.jks",
        "my.keystore",
        ".env",
        "deploy/.env",
        "prod.env",
        "secrets.env",
        "deploy/prod.env",
        "terraform.tfstate",
        "terraform.tfstate.backup",
        ".env.production",
        ".netrc",
        ".pgpass",
        ".git-credentials",
        "kaggle.json",
        ".kaggle/kaggle.json",
        ".config/gcloud/application_default_credentials.json",
        ".aws/credentials",
        ".cache/huggingface/token",
        "cookies.txt",
    ],
)
def test_a_name_that_secrets_go_by_is_enough(name: str) -> None:
    assert find_secrets(name, b"")


def private_key(kind: str) -> str:
    rule = "-----{} " + kind + "PRIVATE" + " KEY-----"
    return f"{rule.format('BEGIN')}\n{noise(64)}\n{rule.format('END')}\n"


@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH ", "EC ", "ENCRYPTED "])
def test_a_private_key_is_found_under_any_name(kind: str) -> None:
    assert find_secrets("server.pem", private_key(kind).encode()) == ("a private key on line 1",)


def test_a_service_account_is_found() -> None:
    key = private_key("").replace("\n", "\\n")
    account = f'{{"type": "x", "private_key": "{key}", "client_email": "a@b.example.com"}}'

    reasons = find_secrets("account.json", account.encode())

    assert "a service account with its private key" in reasons
    assert "a private key on line 1" in reasons


@pytest.mark.parametrize(
    "line",
    [
        "API_KEY=" + noise(32),
        "VAST_API_KEY: " + noise(64, HEX),
        'client_secret = "' + noise(40) + '"',
        '{"apiKey": "' + noise(24) + '"}',
        "export WANDB_API_KEY=" + noise(40, HEX),
        "wandb login --relogin key " + noise(40, HEX),
        "auth_token = '" + "ey" + "J" + noise(30) + "." + noise(60) + "." + noise(40) + "'",
        'os.environ["SECRET_KEY"] = "' + noise(50) + '"',
        'password = "' + "Tr0ub4" + 'dor&3"',
        "PGPASSWORD=" + "h8!Kq2" + "zRv",
        "postgres://app:" + "h8Kq2z" + "Rv@db.internal:5432/app",
        "Authorization: Bearer " + noise(40),
    ],
)
def test_a_random_value_under_a_secret_name_is_found(line: str) -> None:
    (reason, *_) = find_secrets("settings.txt", f"# settings\n{line}\n".encode())

    assert "line 2" in reason


def test_a_file_in_utf_16_is_read() -> None:
    assert find_secrets("settings.txt", ("API_KEY=" + noise(32)).encode("utf-16"))


@pytest.mark.parametrize(
    ("name", "line"),
    [(".npmrc", "//npm.example/:_authToken=" + noise(20)), (".pypirc", "password = x")],
)
def test_a_registry_login_is_found(name: str, line: str) -> None:
    assert find_secrets(name, line.encode())


@pytest.mark.parametrize(
    "name",
    [
        ".env.example",
        ".env.sample",
        ".env.template",
        "example.env",
        "prod.env.example",
        "id_rsa.pub",
        "id_ed25519.pub",
        "environment.yml",
        "keyboard.json",
        "train.py",
        ".npmrc",
        "credentials.md",
        "server.pem",
    ],
)
def test_a_harmless_name_is_let_through(name: str) -> None:
    assert find_secrets(name, b"registry=https://registry.example.com\n") == ()


@pytest.mark.parametrize(
    "line",
    [
        "api_key = your-api-key",
        'API_KEY="xxxxxxxxxxxxxxxxxxxxxxxxxxxx"',
        "token: <token>",
        "TOKEN=${HF_TOKEN}",
        "token = {{ secrets.HF_TOKEN }}",
        'token = os.environ["HF_TOKEN_FOR_RUN_2024"]',
        'password = os.getenv("PASSWORD_2024_PROD")',
        "password = getpass.getpass()",
        "secret = settings.secret_v2.value_2024",
        "AWS_ACCESS_KEY_ID=" + "AK" + "IA" + "IOSFODNN7" + "EXAMPLE",
        "gh" + "p_" + "x" * 36,
        "h" + "f_" + "your" + "HuggingFaceTokenGoesRightHere00",
        "max_tokens = 128000000000000000",
        '"eos_token": "<|endoftext|>", "pad_token": "[PAD]"',
        '"bos_token_id": 128000, "tokenizer_class": "PreTrainedTokenizerFast2024"',
        "tokens = tokenizer.encode(text_2024, add_special_tokens=False)",
        "token_file = /run/secrets/hf_token_2024_file",
        "secret_name: projects/1234/secrets/api-key-2024",
        "token_sha256 = " + noise(64, HEX),
        "sha256:" + noise(64, HEX),
        "commit " + noise(40, HEX),
        "wandb==0.17.1 " + noise(40, HEX),
        "https://user:password@host.example/x",
        "https://$USER:$PASSWORD@host.example/x",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + noise(43) + " me@laptop",
        "task-" + noise(10) + "-sk-learn-estimators-and-pipelines-and-models",
        "if line.startswith('-----BEGIN" + " PRIVATE" + " KEY-----'):",
        'key = sa["private_key"]; who = sa["client_email"]',
        "class SecretTokenPasswordManager(Base):",
        "machine learning by default: login and password",
        "machine HOST login USER password YOUR-PASSWORD-1",
        "TOKENIZER_KEY=/models/tokenizer-2024",
        "PAD_TOKEN=<pad-0000001>",
        "CACHE_KEY=v2-linux-py311",
        "HF_TOKEN=$HF_TOKEN_2024",
        "DefaultEndpointsProtocol=https;AccountKey=<your-key>",
        "password: str | None = None",
        'parser.add_argument("--password", help="the password of 8 characters")',
    ],
)
def test_what_only_resembles_a_secret_is_let_through(line: str) -> None:
    assert find_secrets("train.py", f"import os\n{line}\n".encode()) == ()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("export WANDB_KEY=run5horse\n", "a value given to WANDB_KEY"),
        ("A=1\nDEPLOY_TOKEN='hunter22'\n", "a value given to DEPLOY_TOKEN"),
        ("DB_SECRET=hunter22", "a value given to DB_SECRET"),
        ("machine api.x.com login me password hunter2\n", "a password in the form of a .netrc"),
        ("machine a\n  login b\n  password c0rrect-horse\n", "a password in the form of a .netrc"),
        ("default login b password c0rrect-horse", "a password in the form of a .netrc"),
        ('{"outputs":{"db_password":{"value":"S3cure-horse"}}}', "a value that looks random"),
        ('"db_password": {\n      "value": "S3cure-horse",', "a value that looks random"),
        ("AccountName=x;AccountKey=" + noise(86) + "==;Suffix=y", "an Azure storage key"),
        ("Endpoint=sb://x/;SharedAccessKey=" + noise(43) + "=", "an Azure access key"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_secret_is_known_by_its_form_in_any_encoding(
    content: str, kind: str, encoding: str
) -> None:
    (reason, *_) = find_secrets("notes.txt", content.encode(encoding))

    assert reason.startswith(kind)


@pytest.mark.parametrize(
    "head",
    [
        random.Random(5).randbytes(65536),
        b"token = tokenizer(x)\n" * 3120,
        b"password_" * 7280,
        b"a" * 65536,
        b"://a:" * 13000,
        (b'{"input_ids": [1, 2, 3], "secret_level": 4}\n' * 1500)[:65536],
        b"machine a login b " * 3600 + b"password",
        b"default " * 8190 + b"password",
        b"A_KEY" * 13000,
        b"export A_KEY=\n" * 4600,
    ],
    ids=[
        *("random bytes", "token lines", "one long name", "one word", "addresses", "json lines"),
        *("machines", "defaults", "names of keys", "empty keys"),
    ],
)
def test_64_kib_never_take_a_pattern_long(head: bytes) -> None:
    times_s = []
    for _ in range(5):
        began = time.process_time()
        reasons = find_secrets("file.bin", head)
        times_s.append(time.process_time() - began)

    assert reasons == ()
    # Of computing: 5 ms. A pattern that goes back and forth over such a head computes for seconds.
    assert min(times_s) < 0.2
