"""A host's settings are changed where our entry stands, and read the same everywhere else."""

import json
import re
import tomllib

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenant.faces.install.hosts import jsonc_edit
from gpu_tenant.files import toml_edit
from gpu_tenant.files.toml_edit import TomlError

AT = ("mcpServers", "gpu")
ENTRY: dict[str, jsonc_edit.Json] = {"command": "/bin/gpu-tenant", "args": ["serve"]}

JSON_TEXTS = {
    "nothing in it": "{}",
    "an empty holder": '{\n  "mcpServers": {}\n}\n',
    "another server": '{\n  "mcpServers": {\n    "a": {"command": "x"}\n  },\n  "z": 1\n}\n',
    "tabs": '{\n\t"z": [1, {"mcpServers": 2}]\n}\n',
    "one line": '{"z": 1, "mcpServers": {"a": {}}}',
    "windows lines": '{\r\n  "mcpServers": {\r\n    "a": {}\r\n  }\r\n}\r\n',
    "comments": '// top\n{\n  /* here */\n  "mcpServers": { // servers\n    "a": {}, // mine\n  },\n}\n',
    "a comma at the end": '{\n  "mcpServers": {\n    "a": {},\n  }\n}\n',
    "a byte order mark": '\ufeff{\n  "z": "\\u00e9 // no comment"\n}\n',
    "a comment after the last": '{\n  "mcpServers": {\n    "a": {} // mine\n  }\n}\n',
}


@pytest.mark.parametrize("text", JSON_TEXTS.values(), ids=JSON_TEXTS)
def test_json_gets_the_entry_and_loses_it_again(text: str) -> None:
    before = jsonc_edit.read(text)
    assert isinstance(before, dict)

    added = jsonc_edit.with_member(text, AT, ENTRY)
    taken = jsonc_edit.without_member(added, AT, keep=tuple(before))

    after = jsonc_edit.read(added)
    assert isinstance(after, dict)
    assert after["mcpServers"] == {**dict(before.get("mcpServers") or {}), "gpu": ENTRY}  # type: ignore[call-overload]
    assert {k: v for k, v in after.items() if k != "mcpServers"} == {
        k: v for k, v in before.items() if k != "mcpServers"
    }
    assert ("\r\n" in text) == ("\r\n" in added)
    assert all(remark in added for remark in re.findall(r"//[^\r\n]*|/\*.*?\*/", text))
    assert taken == text


def test_json_with_comments_keeps_them_where_they_are() -> None:
    added = jsonc_edit.with_member(JSON_TEXTS["a comment after the last"], AT, ENTRY)

    assert '"a": {}, // mine\n    "gpu": {' in added


def test_json_with_another_entry_of_ours_changes_that_alone() -> None:
    text = '{\n  "mcpServers": {\n    "gpu": {"command": "old"}, // ours\n    "b": {}\n  }\n}\n'

    changed = jsonc_edit.with_member(text, AT, ENTRY)

    assert "}, // ours\n" in changed
    assert json.loads(changed.replace("// ours", ""))["mcpServers"] == {"gpu": ENTRY, "b": {}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3),
        ('{\n  "a": \n}', 3),
        ('{"a": 1}\n}', 2),
        ("", 1),
        ("[]", 1),
        ('{"mcpServers": []}', 1),
        ('{"mcpServers": {},\n "mcpServers": {}}', 1),
        ("{'a': 1}", 1),
        ('{\n"a": "b\n"}', 2),
    ],
)
def test_what_is_not_an_object_of_servers_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(TomlError) as refused:
        jsonc_edit.with_member(text, AT, ENTRY)

    assert refused.value.line == line


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(["a", "mcpServers", "z"]), st.dictionaries(st.sampled_from("abg"), VALUES)
    ),
    st.sampled_from([None, 1, 2, 4, "\t"]),
    st.booleans(),
)
def test_any_json_is_the_same_again(
    held: dict[str, dict[str, jsonc_edit.Json]], indent: int | str | None, plain: bool
) -> None:
    text = json.dumps(held, indent=indent, ensure_ascii=plain)

    assert jsonc_edit.read(text) == held
    added = jsonc_edit.with_member(text, AT, ENTRY)
    assert json.loads(added) == {**held, "mcpServers": {**held.get("mcpServers", {}), "gpu": ENTRY}}
    assert json.loads(jsonc_edit.without_member(added, AT, keep=tuple(held))) == held


TABLE = ("mcp_servers", "gpu")
TOML_TEXTS = {
    "nothing in it": "",
    "a remark at the end": 'model = "x" # mine\n# the end\n',
    "another server": '[mcp_servers.other]\ncommand = "y"\n\n[mcp_servers.other.env]\nKEY = "v"\n',
    "lists of tables": '[[hooks]]\nname = "a"\n',
    "dotted names": 'mcp_servers.other.command = "y"\n',
    "windows lines": 'model = "x"\r\n[other]\r\nz = 1\r\n',
}


@pytest.mark.parametrize("text", TOML_TEXTS.values(), ids=TOML_TEXTS)
def test_toml_gets_the_table_and_loses_it_again(text: str) -> None:
    added = toml_edit.with_table(text, TABLE, ENTRY)

    assert added.startswith(text)
    assert tomllib.loads(added)["mcp_servers"]["gpu"] == ENTRY
    assert toml_edit.without_table(added, TABLE) == text


def test_toml_without_a_last_line_end_gets_one() -> None:
    added = toml_edit.with_table("z = 1", TABLE, ENTRY)

    assert added.startswith("z = 1\n\n[mcp_servers.gpu]\n")


def test_toml_with_another_table_of_ours_changes_those_lines_alone() -> None:
    text = '[mcp_servers.gpu]  # ours\nenabled = false\ncommand = "old"\n# why\nargs = []\n\n[mcp_servers.gpu.env]\nA = "b"\n\n# next\n[z]\n'

    changed = toml_edit.with_table(text, TABLE, ENTRY)
    taken = toml_edit.without_table(changed, TABLE)

    assert changed == text.replace('"old"', '"/bin/gpu-tenant"').replace("[]", '["serve"]')
    assert taken.strip() == "# next\n[z]"


IN_ANY_FORM = {
    "inline": (
        '[mcp_servers]\n"gpu" = { command = "old", args = ["serve"] } # mine\na = { command = "x" }\n',
        '[mcp_servers]\na = { command = "x" }\n',
    ),
    "all inline": (
        'mcp_servers = { gpu = { command = "old", args = ["serve"] }, a = {} } # mine\n',
        "mcp_servers = {  a = {} } # mine\n",
    ),
    "dotted names": (
        'z = 1 # mine\nmcp_servers.gpu.command = "old"\nmcp_servers.gpu.args = ["serve"]\n',
        "z = 1 # mine\n",
    ),
    "in two places": (
        '[mcp_servers.gpu.env] # mine\nA = "b"\n\n[z]\n\n[mcp_servers.gpu]\ncommand = "old"\nargs = ["serve"]\n\n# end\n',
        "\n[z]\n\n# end\n",
    ),
    "a list over lines": (
        '[mcp_servers.gpu]\ncommand = "old"\nargs = [\n  "serve", # mine\n]\n',
        "",
    ),
    "windows lines": (
        '[mcp_servers.gpu]\r\ncommand = "old" # mine\r\nargs = ["serve"]\r\n\r\n# z is next\r\n[z]\r\n',
        "\r\n# z is next\r\n[z]\r\n",
    ),
}


@pytest.mark.parametrize(("text", "without"), IN_ANY_FORM.values(), ids=IN_ANY_FORM)
def test_toml_in_any_form_has_one_value_changed_and_its_comments_kept(
    text: str, without: str
) -> None:
    changed = toml_edit.with_table(text, TABLE, ENTRY)

    assert changed == text.replace('"old"', '"/bin/gpu-tenant"')
    assert toml_edit.without_table(changed, TABLE) == without


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_new_line_in_a_table_stands_above_the_remarks_on_the_next(newline: str) -> None:
    text = "[limits] # mine\na = 1 # one\n\n# about z\n[z]\n".replace("\n", newline)

    changed = toml_edit.with_table(text, ("limits",), {"a": 2, "b": 3})

    assert changed == text.replace("a = 1 # one", f"a = 2 # one{newline}b = 3")


def test_items_of_a_list_keep_their_comments() -> None:
    text = '[mcp_servers.gpu]\nargs = [\n  "a", # one\n  "b", # two\n  "c",\n]\n'

    longer, shorter = (
        toml_edit.with_table(text, TABLE, {"args": args})
        for args in (["a", "B", "c", "d"], ["serve", "b"])
    )

    assert longer == text.replace('"b"', '"B"').replace('"c",\n', '"c",\n  "d",\n')
    assert shorter == text.replace('"a"', '"serve"').replace('  "c",\n', "")


def test_toml_gets_an_entry_in_the_form_that_the_others_have() -> None:
    added = toml_edit.with_table("mcp_servers = { a = {} } # mine\n", TABLE, ENTRY)

    assert tomllib.loads(added)["mcp_servers"] == {"a": {}, "gpu": ENTRY}
    assert added.endswith("} # mine\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a = 1\nb = "x\n', 2),
        ("mcp_servers = 3\n", 1),
        ("[mcp_servers]\ngpu = 3\n", 1),
        ("[[mcp_servers]]\n", 1),
    ],
)
def test_toml_that_is_not_changed_safely_is_refused(text: str, line: int) -> None:
    with pytest.raises(TomlError) as refused:
        toml_edit.with_table(text, TABLE, ENTRY)

    assert refused.value.line >= line


ODD = st.text("a\u00e9 \"'\\\n\r\t#[]=,{}\0", max_size=6)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.sampled_from(["a", "mcp_servers", "z"]),
        st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("xyz"), ODD)),
    )
)
def test_any_toml_is_the_same_again(held: dict[str, dict[str, dict[str, str]]]) -> None:
    text = tomlkit.dumps(held)

    added = toml_edit.with_table(text, TABLE, ENTRY)

    assert tomllib.loads(added)["mcp_servers"]["gpu"] == ENTRY
    assert toml_edit.without_table(added, TABLE) == text
