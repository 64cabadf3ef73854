"""Which of the owner's secrets a work tree, or a tool, may name: those that the owner has allowed, and no other."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from e2e.leased import end_processes
from e2e.owner import Owner
from signed import signs
from terminal import typed_at

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import SecretRefused, SignatureWanted
from gpu_tenant.service import Tenancy

T = TypeVar("T")

CANARY = "canary-of-a-login-0123456789"

FILES = (
    # Coding agents
    "~/.claude/.credentials.json",
    "~/.codex/auth.json",
    "~/.gemini/oauth_creds.json",
    "~/.config/github-copilot/hosts.json",
    "~/.local/share/opencode/auth.json",
    "~/.cursor/auth.json",
    "~/.aider.conf.yml",
    "~/.continue/config.json",
    # Clouds
    "~/.aws/credentials",
    "~/.azure/accessTokens.json",
    "~/.config/gcloud/application_default_credentials.json",
    "~/.oci/config",
    "~/.config/doctl/config.yaml",
    "~/.config/hcloud/cli.toml",
    # Providers of GPUs
    "~/.lambda_cloud/lambda_keys",
    "~/.runpod/config.toml",
    "~/.config/vastai/vast_api_key",
    "~/.modal.toml",
    # Registries, models and data
    "~/.npmrc",
    "~/.pypirc",
    "~/.cargo/credentials.toml",
    "~/.gem/credentials",
    "~/.docker/config.json",
    "~/.config/containers/auth.json",
    "~/.cache/huggingface/token",
    "~/.kaggle/kaggle.json",
    "~/.netrc",
    # Vaults, and what deploys
    "~/.vault-token",
    "~/.terraform.d/credentials.tfrc.json",
    "~/.kube/config",
    "~/.config/op/config",
    "~/.password-store/x.gpg",
    # Keys, databases, browsers and shells
    "~/.ssh/id_ed25519",
    "~/.gnupg/private-keys-v1.d/a.key",
    "~/.pgpass",
    "~/.my.cnf",
    "~/.git-credentials",
    "~/.config/gh/hosts.yml",
    "~/.mozilla/firefox/a.default/logins.json",
    "~/.config/google-chrome/Default/Login Data",
    "~/.bash_history",
)
VARIABLES = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "HF_TOKEN",
    "WANDB_API_KEY",
    "RUNPOD_API_KEY",
    "VAULT_TOKEN",
)
LOGINS = (*(f"file:{path}" for path in FILES), *(f"env:{name}" for name in VARIABLES))
"""Where 49 programs have their logins: 41 by file, and 8 by variable."""


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    home = tmp_path / "home"
    for number, path in enumerate(FILES):
        file = home / path.removeprefix("~/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{CANARY}-{number}", encoding="utf-8")
    for name in VARIABLES:
        monkeypatch.setenv(name, f"{CANARY}-{name}")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GPU_TENANT_HOME", str(home / ".gpu-tenant"))
    tree = home / "train"
    tree.mkdir()
    (tree / "train.py").write_text("print(1)\n", encoding="utf-8")
    yield Owner(home / ".gpu-tenant", tree)
    end_processes(home / ".gpu-tenant" / "boxes")


def called(act: Callable[[Tenancy], Awaitable[T]]) -> T:
    """What a tool answers."""

    async def run() -> T:
        tenancy = open_tenancy()
        try:
            return await act(tenancy)
        finally:
            await tenancy.aclose()

    return asyncio.run(run())


def launched(lease: str, *env: str, command: str = 'printf %s "$K" >out') -> None:
    called(lambda t: t.launch_detached(lease, command, ["out"], env=list(env)))


def signed(code: str) -> None:
    async def act(tenancy: Tenancy) -> None:
        signs(tenancy, code)

    called(act)


def sent(owner: Owner) -> list[str]:
    """The files on any box that hold a login."""
    boxes = owner.state / "boxes"
    return [str(p) for p in boxes.rglob("*") if p.is_file() and CANARY.encode() in p.read_bytes()]


def test_no_login_of_49_programs_is_sent_because_a_tool_names_it(owner: Owner) -> None:
    lease = owner.has_box()
    owner.does("push", str(owner.tree), lease)
    refused = []

    async def all_of_them(tenancy: Tenancy) -> None:
        for reference in LOGINS:
            for act in (
                lambda env: tenancy.launch_detached(lease, "true", ["out"], env=env),
                lambda env: tenancy.prepare(lease, env=env),
                lambda env: tenancy.launch_detached(
                    lease, "true {a}", ["out/{cell}/"], env=env, matrix={"a": [1]}
                ),
            ):
                with pytest.raises((SignatureWanted, SecretRefused)) as told:
                    await act([f"K={reference}"])
                refused.append(told.value.code)
                assert CANARY not in str(told.value)

    called(all_of_them)

    assert len(LOGINS) == 49
    assert len(refused) == 3 * len(LOGINS)
    assert called_jobs(lease) == 0
    assert sent(owner) == []


def called_jobs(lease: str) -> int:
    async def count(tenancy: Tenancy) -> int:
        return len(tenancy.ledger.jobs(lease))

    return called(count)


@pytest.mark.parametrize("form", ["[env]\nK = {}\n", "[run]\nenv = [{}]\n"])
def test_no_login_of_49_programs_is_sent_because_a_tree_names_it(owner: Owner, form: str) -> None:
    is_ordered, tree = "[env]" in form, str(owner.tree)

    async def all_of_them(tenancy: Tenancy) -> None:
        for reference in LOGINS:
            said = json.dumps(reference if is_ordered else f"K={reference}")
            (owner.tree / "gpu-tenant.toml").write_text(form.format(said), encoding="utf-8")
            calls: list[Callable[[], Awaitable[object]]] = [lambda: begun(tenancy, owner.tree)]
            if is_ordered:
                calls += [
                    lambda: tenancy.find_offers(order=tree),
                    lambda: tenancy.provision(smoke="none", order=tree),
                ]
            for call in calls:
                with pytest.raises((SignatureWanted, SecretRefused)) as told:
                    await call()
                assert CANARY not in str(told.value)
                # A person is asked about a variable. A file outside of the tree is out of the question.
                assert not (isinstance(told.value, SignatureWanted) and "file:" in reference)

    called(all_of_them)

    assert sent(owner) == []


async def begun(tenancy: Tenancy, tree: Path) -> str:
    """The errand of a call of `run`, with what the tree's file says."""
    from gpu_tenant.errands.drive import begin
    from gpu_tenant.errands.requests import errand_of

    said = {"command": "true", "artifacts": ("out",)}
    return begin(tenancy, errand_of(tenancy.context, tree, said))


def test_one_signature_allows_it_for_that_tree_from_then_on(owner: Owner) -> None:
    lease = owner.has_box()
    owner.does("push", str(owner.tree), lease)
    with pytest.raises(SignatureWanted) as wanted:
        launched(lease, "K=env:HF_TOKEN")
    signed(wanted.value.asked)

    launched(lease, "K=env:HF_TOKEN")
    another = owner.has_box()
    owner.does("push", str(owner.tree), another)
    launched(another, "K=env:HF_TOKEN")
    strangers = owner.tree.with_name("stranger")
    strangers.mkdir()
    (strangers / "train.py").write_text("print(2)\n", encoding="utf-8")
    third = owner.has_box()
    owner.does("push", str(strangers), third)

    assert f"let jobs of {owner.tree} have these variables of yours: K from env:HF_TOKEN" in str(
        wanted.value
    )
    for lease, reference in ((third, "env:HF_TOKEN"), (another, "env:GITHUB_TOKEN")):
        with pytest.raises(SignatureWanted):
            launched(lease, f"K={reference}")


def test_one_line_of_the_owner_s_allows_it_for_every_tree(owner: Owner) -> None:
    lease = owner.has_box()
    with pytest.raises(SignatureWanted) as wanted:
        launched(lease, "K=env:HF_TOKEN")
    (line,) = [x for x in wanted.value.remedy.split("`") if x.startswith("K = ")]
    (owner.state / "config.toml").write_text(f"[references]\n{line}\n", encoding="utf-8")

    launched(lease, "K=env:HF_TOKEN")
    launched(lease, "K=ref:K")
    (owner.tree / "gpu-tenant.toml").write_text('[env]\nK = "env:HF_TOKEN"\n', encoding="utf-8")
    called(lambda t: t.find_offers(order=str(owner.tree)))

    with pytest.raises(SignatureWanted):
        launched(lease, "K=env:GITHUB_TOKEN")


def test_what_a_person_types_at_a_terminal_is_their_own_word_and_a_pipe_s_is_not(
    owner: Owner,
) -> None:
    lease = owner.has_box()
    words = ("launch", "--lease", lease, "--artifact", "out", "--env", "K=env:HF_TOKEN")

    owner.is_told(3, "SIGNATURE_WANTED", *words, "--", "true")
    status, _, shown = typed_at([*words, "--", 'printf %s "$K" >out'], "")

    assert status == 0, shown
    # The same job by a tool is what was agreed already.
    launched(lease, "K=env:HF_TOKEN")


def test_a_person_at_a_terminal_signs_once_for_what_their_tree_names(owner: Owner) -> None:
    file = owner.tree / "gpu-tenant.toml"
    file.write_text('[env]\nHF_TOKEN = "env:HF_TOKEN"\n', encoding="utf-8")

    words = ["offers", "--order", str(file)]
    _, _, shown = typed_at(words, "train")
    _, _, again = typed_at(words, "")

    assert "HF_TOKEN from env:HF_TOKEN" in shown
    assert "Type train to sign for this" in shown
    assert "Type train" not in again
    called(lambda t: t.find_offers(order=str(owner.tree)))


def test_a_file_that_a_tree_names_is_in_the_tree_also_when_it_is_read(owner: Owner) -> None:
    file, token = owner.tree / "gpu-tenant.toml", owner.tree / "token"
    file.write_text('[env]\nK = "file:token"\n', encoding="utf-8")
    token.symlink_to(owner.state.parent / ".npmrc")
    order = str(owner.tree)
    rent = lambda: called(lambda t: t.provision(smoke="none", order=order))  # noqa: E731

    with pytest.raises(SecretRefused, match="not in its work tree"):
        rent()
    token.unlink()
    token.write_text("of this job alone", encoding="utf-8")
    with pytest.raises(SignatureWanted) as wanted:
        rent()
    signed(wanted.value.asked)
    lease = rent().lease
    launched(lease)
    token.unlink()
    token.symlink_to(owner.state.parent / ".npmrc")

    with pytest.raises(SecretRefused, match="not in its work tree"):
        launched(lease, command="true")
    assert sent(owner) == []


@pytest.mark.parametrize("reference", ["file:../.codex/auth.json", "file:a/../../.codex/auth.json"])
def test_no_path_leads_out_of_the_tree(owner: Owner, reference: str) -> None:
    (owner.tree / "gpu-tenant.toml").write_text(f'[env]\nK = "{reference}"\n', encoding="utf-8")

    with pytest.raises(SecretRefused, match="not in its work tree"):
        called(lambda t: t.find_offers(order=str(owner.tree)))


def test_a_tree_includes_nothing_from_outside_of_itself(owner: Owner) -> None:
    (owner.tree / "h").symlink_to(owner.state.parent)
    file = owner.tree / "gpu-tenant.toml"
    file.write_text('[run]\ninclude = ["h/.bash_history"]\n', encoding="utf-8")

    with pytest.raises(SecretRefused, match="leads out of the work tree"):
        called(lambda t: begun(t, owner.tree))


def test_a_tool_sends_no_file_that_looks_like_a_secret_without_a_signature(owner: Owner) -> None:
    lease = owner.has_box()
    (owner.tree / "h").symlink_to(owner.state.parent)
    login = owner.state.parent / ".npmrc"
    login.write_text(f"//registry.npmjs.org/:_authToken=npm_{'a1B2' * 9}\n", encoding="utf-8")
    push = lambda: called(  # noqa: E731
        lambda t: t.push(lease, str(owner.tree), include=["h/.npmrc"], include_secrets=["h/.npmrc"])
    )

    with pytest.raises(SignatureWanted) as wanted:
        push()
    before = owner.work(lease).exists()
    signed(wanted.value.asked)
    push()

    assert f"h/.npmrc, which leads to {login}" in str(wanted.value)
    assert not before
    assert (owner.work(lease) / "h" / ".npmrc").exists()


def test_a_pipe_sends_no_file_that_looks_like_a_secret_and_a_person_at_a_terminal_does(
    owner: Owner,
) -> None:
    lease = owner.has_box()
    (owner.tree / ".env").write_text("AWS_SECRET_ACCESS_KEY=" + "Ab3/" * 10, encoding="utf-8")
    words = ["push", str(owner.tree), lease, "--include-secret", ".env"]

    owner.is_told(3, "SIGNATURE_WANTED", *words)
    before = owner.work(lease).exists()
    status, _, shown = typed_at(words, "")

    assert status == 0, shown
    assert not before
    assert (owner.work(lease) / ".env").exists()
