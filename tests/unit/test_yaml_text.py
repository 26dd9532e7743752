"""YAML is read within limits everywhere."""

import re

import pytest

from lexicept.errors import InputError
from lexicept.storage.yaml_text import DEEPEST, LARGEST, parse_yaml, read_yaml

# Each line doubles the one before: 2^40 values.
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], y{n}: 1}}\n" for n in range(1, 41)
)
LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 41))


def test_values_have_types_up_to_the_limits():
    text = "a: 1\nb: no\nc: &c [x, 0.5]\nd: *c\ne: {<<: {f: 2}, g: *c}\n"
    expected = {"a": 1, "b": False, "c": ["x", 0.5], "d": ["x", 0.5]}
    assert parse_yaml(text) == {**expected, "e": {"f": 2, "g": ["x", 0.5]}}
    assert parse_yaml("[" + "x, " * (LARGEST - 1) + "]") == ["x"] * (LARGEST - 1)
    depth = DEEPEST - 1
    value = parse_yaml("[" * depth + "x" + "]" * depth)
    for _ in range(depth):
        (value,) = value
    assert value == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MERGES, f"more than {LARGEST:,} values"),
        (LAUGHS, f"more than {LARGEST:,} values"),
        ("[" + "x, " * LARGEST + "]", f"more than {LARGEST:,} values"),
        ("[" * 200 + "]" * 200, f"more than {DEEPEST} values inside each other"),
        ("[" * 1_000_000, f"more than {DEEPEST} values inside each other"),
        ("- " * 200 + "x", f"more than {DEEPEST} values inside each other"),
        ("&a [x, *a]", "a value that contains itself"),
        ("&a {<<: *a}", "a value that contains itself"),
        ("a: 1\nb: [", "line 2: expected the node content, but found '<stream end>'"),
        ("*a", "line 1: found undefined alias 'a'"),
        ("a: \0", "unacceptable character"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(InputError, match=f"^not YAML: {re.escape(message)}"):
        parse_yaml(text)


def test_a_bomb_in_a_file_is_one_error(tmp_path):
    path = tmp_path / "bomb.yaml"
    path.write_text(MERGES)
    with pytest.raises(InputError, match=f"^{re.escape(str(path))}: not YAML: more than"):
        read_yaml(path)


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    for name, message in (("none", "No such file"), ("latin", "not UTF-8"), ("a\0", "")):
        with pytest.raises(InputError, match=f"^{re.escape(str(tmp_path / name))}: {message}"):
            read_yaml(tmp_path / name)
