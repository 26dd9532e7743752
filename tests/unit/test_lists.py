"""Candidate lists: every format by its literal lines, refusals and their lines, random access."""

import gzip
import math
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lexicept.candidates.lists import CandidateList, Lists, from_qrels, write_lists
from lexicept.corpora import Qrel, read_qrels
from lexicept.errors import InputError

OURS = '{"query_id": "q", "relevant": ["a"], "candidates": ["b", "c"], "scores": [3, 2.5, -1]}'


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "lists"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def refusal(path: Path) -> str:
    """The one error of a file, opened and read."""
    with pytest.raises(InputError) as caught:
        list(Lists.open(path))
    return str(caught.value)


# Formats


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (OURS, CandidateList("q", ("a", "b", "c"), 1, (3.0, 2.5, -1.0))),
        (
            '{"query_id": 7, "relevant": [], "candidates": ["b", 8], "scores": null}',
            CandidateList("7", ("b", "8"), 0),
        ),
        ('{"query_id": "q", "relevant": ["ä"], "candidates": []}', CandidateList("q", ("ä",), 1)),
        # ColBERTv2: the first document is the positive; ids may be numbers.
        (
            '[300674, [7067032, 15.5], [2495755, 0.25], ["x", -3]]',
            CandidateList("300674", ("7067032", "2495755", "x"), 1, (15.5, 0.25, -3.0)),
        ),
        ("[1, [2, 0.5], [3, 1], [2, 9], [3, 9]]", CandidateList("1", ("2", "3"), 1, (0.5, 1.0))),
        ("[1, 2, 3]", CandidateList("1", ("2", "3"), 1)),
        # MarginMSE: the scores of the positive and the negative, in front.
        ("9.25\t-1e-1\t7\tp\tn", CandidateList("7", ("p", "n"), 1, (9.25, -0.1))),
        # sentence-transformers/msmarco-hard-negatives.
        (
            '{"qid": 5, "pos": [1, 2], "neg": {"bm25": [9, 2, 8], "tas-b": [7, 9, 1]}}',
            CandidateList("5", ("1", "2", "9", "8", "7"), 2),
        ),
        (
            '{"qid": 5, "pos": [{"pid": 1, "ce-score": 9.5}], '
            '"neg": {"bm25": [{"pid": 3, "ce-score": -1}, {"pid": 1, "ce-score": 0}]}}',
            CandidateList("5", ("1", "3"), 1, (9.5, -1.0)),
        ),
        ('{"qid": 5, "pos": [{"pid": 1}, 1], "neg": {}}', CandidateList("5", ("1",), 1)),
        ("12\t34\t5", CandidateList("12", ("34", "5"), 1)),
    ],
)
@pytest.mark.parametrize("frame", ["{}", "{}\n", "\n\r\n {} \r\n\n", "\ufeff{}\n"])
def test_formats(write, line, expected, frame):
    lists = Lists.open(write(frame.format(line)))
    assert list(lists) == [expected]
    assert len(lists) == 1


def test_positions_and_missing_scores(write):
    lists = Lists.open(write("".join(f"q{i}\tp\tn\n" + "\n" * (i % 3) for i in range(20))))
    names = [f"q{i}" for i in range(20)]
    assert [item.query_id for item in lists] == names
    assert [lists[i].query_id for i in range(-20, 20)] == names * 2
    assert lists[np.int64(3)].query_id == "q3"
    assert [item.query_id for item in lists[5:15:4]] == ["q5", "q9", "q13"]
    assert [item.query_id for item in lists[::-1]] == names[::-1]
    for outside in (20, -21):
        with pytest.raises(IndexError):
            lists[outside]
    lists = Lists.open(write("[1, [2, 3]]\n[1, 2]\n"))
    assert [item.scores for item in lists] == [(3.0,), None]


@pytest.mark.parametrize(
    ("first", "line", "reason"),
    [
        (OURS, "nonsense", "not valid JSON: Expecting value (column 1)"),
        (OURS, "{nonsense}", "not valid JSON"),
        (OURS, "[1, 2, 3]", "not a JSON object"),
        (OURS, '{"query_id": "q", "relevant": ["a"]}', "candidates must be an array"),
        (OURS, '{"query_id": "q", "relevant": "ab", "candidates": []}', "relevant must be an arr"),
        (OURS, '{"relevant": ["a"], "candidates": []}', "an id must be a string or an int"),
        (OURS, '{"query_id": true, "relevant": ["a"], "candidates": []}', "not True"),
        (OURS, '{"query_id": "a b", "relevant": ["a"], "candidates": []}', "bad id 'a b'"),
        (OURS, '{"query_id": "q", "relevant": [""], "candidates": []}', "bad id ''"),
        (OURS, '{"query_id": "q", "relevant": ["\\ud800"], "candidates": []}', "UTF-8"),
        (OURS, '{"query_id": "q", "relevant": [1.5], "candidates": []}', "not 1.5"),
        (OURS, '{"query_id": "q", "relevant": [], "candidates": []}', "'q' has no documents"),
        (OURS, '{"query_id": "q", "relevant": ["a"], "candidates": ["a"]}', "'a' is there twice"),
        (
            OURS,
            '{"query_id": "q", "relevant": ["a"], "candidates": ["b"], "scores": [1]}',
            "1 scores for 2 documents",
        ),
        *(
            (
                OURS,
                f'{{"query_id": "q", "relevant": ["a"], "candidates": [], "scores": [{score}]}}',
                "a score must be a finite number",
            )
            for score in ("NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "true", '"1"', "null")
        ),
        (OURS, "[" * 100_000 + "]", "not valid JSON"),
        (OURS, "{" + "1" * 5000 + "}", "not valid JSON"),
        ("[1, 2]", "[1]", "not a JSON array of a query and its documents"),
        ("[1, 2]", '{"a": 1}', "not a JSON array of a query and its documents"),
        ("[1, 2]", "[1, [2, 3], 4]", "some documents have scores and others have none"),
        ("[1, 2]", "[1, [2, 3, 4]]", "an id must be"),
        ("[1, 2]", "[[1], 2]", "an id must be"),
        ("[1, 2]", '[1, [2, "x"]]', "a score must be a finite number, not 'x'"),
        ('{"qid": 1, "pos": [2], "neg": {}}', '{"qid": 1, "pos": [2]}', "neg must be an object"),
        ('{"qid": 1, "pos": [2], "neg": {}}', '{"pos": [2], "neg": {}}', "an id must be"),
        ('{"qid": 1, "pos": [2], "neg": {}}', '{"qid": 1, "pos": 2, "neg": {}}', "pos must be"),
        ('{"qid": 1, "pos": [2], "neg": {}}', '{"qid": 1, "pos": [], "neg": {"s": 3}}', "s must"),
        ('{"qid": 1, "pos": [2], "neg": {}}', '{"qid": 1, "pos": [], "neg": {}}', "no documents"),
        ("1\t2\t3", "1\t2", "2 columns"),
        ("1\t2\t3", "1\t2\t3\t4", "4 columns"),
        ("1\t2\t3", "1\t2\t2", "'2' is both positive and negative"),
        ("1\t2\t3", "1\ta b\t3", "bad id 'a b'"),
        ("1\t2\t3", "\t2\t3", "bad id ''"),
        ("1\t2\t3", "1\t2\t", "bad id ''"),
    ],
)
def test_bad_lines(write, first, line, reason):
    path = write(f"{first}\n\n{first}\n{line}\n{first}\n")
    message = refusal(path)
    assert message.startswith(f"{path}, line 4: ")
    assert reason in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": no lists; accepted: lexicept's lists"),
        ("\n \r\n", ": no lists"),
        ("\ufeff\n", ": no lists"),
        ("a b c", ", line 1: not a line of lists; accepted"),
        ("\n1\t2", ", line 2: not a line of lists"),
        ('{"_id": "a", "text": "x"}', ", line 1: not a line of lists"),
        ("{", ", line 1: not valid JSON"),
        ("[1, 2", ", line 1: not valid JSON"),
        (b"1\t2\t\xff", ", line 1: not UTF-8: invalid start byte"),
        (
            gzip.compress(b"1\t2\t3\n", mtime=0),
            ": gzipped, and read in random order: gunzip it first",
        ),
    ],
)
def test_bad_files(write, text, message):
    path = write(text)
    with pytest.raises(InputError) as caught:
        Lists.open(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_files_and_lines_that_are_refused(tmp_path, write):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="cannot be read"):
            Lists.open(path)
    for first, other in ((OURS, "[1, 2]"), ("[1, 2]", OURS), ("1\t2\t3", OURS), (OURS, "1\t2\t3")):
        with pytest.raises(InputError, match="line 2"):
            Lists.open(write(f"{first}\n{other}\n"))
    path = write(f"{OURS}\n\n{{}}\n{OURS}\n".encode() + b'{"\xff"}\n')
    lists = Lists.open(path)
    assert len(lists) == 4
    assert lists[0] == lists[2]
    for position, line in ((1, 3), (3, 5), (-3, 3)):
        with pytest.raises(InputError, match=f"lists, line {line}: "):
            lists[position]


# Random access


def test_the_file_is_not_held_in_memory(write):
    path = write(f"[1, [2, 3], {', '.join(f'[{i}, 0.5]' for i in range(100, 150))}]\n" * 20_000)
    assert path.stat().st_size > 10e6
    tracemalloc.start()
    assert Lists.open(path)[19_999].documents[0] == "2"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6


# Writing

ids = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc", "Zl", "Zp"]), min_size=1),
    st.sampled_from(["{", "[1", '"', "\\", "\ufeff"]),
).filter(lambda name: name.split() == [name])
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def candidate_lists(draw: st.DrawFn) -> CandidateList:
    documents = draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    relevant = draw(st.integers(0, len(documents)))
    length = len(documents)
    scores = draw(st.none() | st.lists(numbers, min_size=length, max_size=length).map(tuple))
    return CandidateList(draw(ids), tuple(documents), relevant, scores)


@given(st.lists(candidate_lists(), min_size=1, max_size=5))
def test_lists_come_back(tmp_path_factory, items):
    path = tmp_path_factory.mktemp("lists") / "new" / "l.jsonl"
    assert list(write_lists(path, iter(items))) == items
    assert list(Lists.open(path)) == items


def test_what_is_written(tmp_path):
    with pytest.raises(InputError, match="no lists to write"):
        write_lists(tmp_path / "l.jsonl", [])
    assert os.listdir(tmp_path) == []
    path = tmp_path / "l2.jsonl"
    items = [CandidateList("q", ("ä", "b"), 1, (np.float32(0.5), 2)), CandidateList("r", ("b",), 0)]
    write_lists(path, items)
    assert path.read_text(encoding="utf-8") == (
        '{"query_id": "q", "relevant": ["ä"], "candidates": ["b"], "scores": [0.5, 2.0]}\n'
        '{"query_id": "r", "relevant": [], "candidates": ["b"]}\n'
    )
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (CandidateList("q", (), 0), "no documents"),
        (CandidateList("q", ("a", "b", "a"), 1), "'a' is there twice"),
        (CandidateList("q", ("a",), 2), "2 of 1 documents relevant"),
        (CandidateList("q", ("a",), -1), "-1 of 1"),
        (CandidateList("q", ("a",), 1, ()), "0 scores for 1"),
        (CandidateList("q", ("a",), 1, (math.nan,)), "score nan of 'a' is not finite"),
        (CandidateList("q", ("a",), 1, (-math.inf,)), "score -inf"),
        (CandidateList("q r", ("a",), 1), "bad id 'q r'"),
        (CandidateList("q", ("a\n",), 1), "bad id"),
    ],
)
def test_what_is_not_written(tmp_path, item, message):
    path = tmp_path / "l.jsonl"
    write_lists(path, [CandidateList("old", ("a",), 1)])
    with pytest.raises(InputError, match=message) as caught:
        write_lists(path, [CandidateList("q", ("a",), 1), item])
    assert str(caught.value).startswith(f"{path}, line 2: ")
    assert [old.query_id for old in Lists.open(path)] == ["old"]
    assert os.listdir(tmp_path) == ["l.jsonl"]


# Any bytes

PIECES = st.sampled_from(
    [
        *'{}[]:,"\\ \t\n\r01e-.',
        "\ufeff",
        '"query_id"',
        '"relevant"',
        '"candidates"',
        '"scores"',
        '"qid"',
        '"pos"',
        '"neg"',
        '{"pid": 1}',
        "NaN",
        "1e999",
        "true",
        "null",
        "\n[1, [2, 3], [4, 5]]\n",
        "\n1\t2\t3\n",
        OURS,
    ]
)


@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(PIECES, max_size=20).map("".join).map(str.encode),
        st.tuples(st.sampled_from([OURS, "[1, [2, 3]]", "1\t2\t3"]), st.binary(max_size=20)).map(
            lambda pair: pair[0].encode() + b"\n" + pair[1]
        ),
        st.tuples(st.integers(0, len(OURS) - 1), PIECES).map(
            lambda pair: (OURS[: pair[0]] + pair[1] + OURS[pair[0] + 1 :]).encode()
        ),
    )
)
@example(b"\xef\xbb\xbf\n\xef\xbb\xbf1\t2\t3")
@example(b"1\t2\t3\x0c\n\x0b")
def test_any_bytes_are_lists_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "l"
    path.write_bytes(text)
    try:
        items = list(Lists.open(path))
    except InputError as error:
        message = str(error)
    else:
        # What is accepted is sound: it can be written and comes back.
        assert items
        assert list(write_lists(path.with_name("again"), items)) == items
        return
    assert message.startswith(str(path))


# Judgements


def test_lists_of_judgements(data, tmp_path):
    qrels = [
        Qrel("q1", "a", 1),
        Qrel("q2", "b", 0),
        Qrel("q3", "c", -1),
        Qrel("q2", "d", 2),
        Qrel("q1", "b", 3),
        Qrel("q1", "a", 1),
    ]
    assert from_qrels(qrels) == [CandidateList("q1", ("a", "b"), 2), CandidateList("q2", ("d",), 1)]
    items = from_qrels(read_qrels(data / "scifact", "train"))
    assert len(items) == 809
    assert sum(item.relevant for item in items) == 919
    assert list(write_lists(tmp_path / "l.jsonl", items)) == items
