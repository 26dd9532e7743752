"""Encodings of texts: damaged UTF-8, labels, UTF-16 without a mark, and warnings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import read_documents
from lexicept.corpora.text_encoding import BinaryError, decode_text, encoding_of
from lexicept.errors import LexiceptWarning

JAPANESE = "楽器の修理についての案内です。ヴァイオリンの弦を交換しました。"
KOREAN = "악기 수리 안내입니다. 샾에서 똠방각하를 만났습니다."


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("euc_jp", JAPANESE),
        ("cp932", JAPANESE + "①㈱髙橋"),
        ("iso2022_jp", JAPANESE),
        ("big5", "小提琴維修店在市中心更換了琴弦，價格是三百元。"),
        ("cp1256", "تصليح الكمان في وسط المدينة. استبدال الأوتار يكلف ثلاثة آلاف."),
        ("cp1251", "Ремонт скрипок в центре города."),
        ("cp1252", "café"),
        ("cp1252", "It’s the owner’s “shop”… really"),
    ],
)
def test_short_texts_are_read_in_the_likeliest_encoding(codec, text):
    assert decode_text(text.encode(codec)) == text
    # A text about HTML declares nothing.
    about = f"<meta charset=utf-16> {text}"
    assert decode_text(about.encode(codec)) == about


def test_zeros_are_binary():
    for data in (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"\x7fELF\2\1\1\0\0\0\0\0", b"\0\1\0\2"):
        with pytest.raises(BinaryError):
            decode_text(data)


@given(st.text("äßж楽", min_size=9), st.data())
def test_a_damaged_byte_is_a_replacement(text, data):
    raw = text.encode()
    position = data.draw(st.integers(0, len(text)))
    damaged = text[:position].encode() + b"\xff" + text[position:].encode()
    assert decode_text(damaged) == f"{text[:position]}\ufffd{text[position:]}"
    assert decode_text(raw[:-1]) == text[:-1] + "\ufffd"


def test_replacements_in_the_text_are_no_damage():
    text = "caf\ufffd " * 9
    assert decode_text(text.encode()) == text
    assert encoding_of([text.encode() + b"\xe9"]) == "utf-8"
    assert decode_text("Köln".encode("cp1252")) == "Köln"


def test_blocks_may_divide_characters():
    data = "楽器の修理".encode() + b"\xff"
    assert encoding_of(data[index : index + 1] for index in range(len(data))) == "utf-8"
    assert encoding_of([b"caf", b"\xe9"]) != "utf-8"


def test_files_of_every_format_are_read_with_replacements_and_named(tmp_path):
    good = "Müller aus Köln übt"
    damaged = good.encode() + b" \xff x"
    files = {
        "a.txt": damaged,
        "a.md": damaged,
        "a.rst": damaged,
        "a.html": b"<meta charset=utf-8><p>" + damaged,
        "a.csv": b"id,text\n1," + damaged,
        "a.tsv": b"id\ttext\n1\t" + damaged,
        "a.jsonl": b'{"id": 1, "text": "' + damaged + b'"}',
        "a.json": b'[{"id": 1, "text": "' + damaged + b'"}]',
        "sound.txt": good.encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.warns(LexiceptWarning) as caught:
        documents = {d.id.split("#")[0]: d.text for d in read_documents(tmp_path)}
    assert documents == dict.fromkeys(files, f"{good} \ufffd x") | {"sound.txt": good}
    (message,) = [str(warning.message) for warning in caught]
    assert message == (
        f"{tmp_path}: 8 files read in part\n  8 damaged characters read as U+FFFD: "
        + ", ".join(f"{tmp_path}/a.{end}" for end in ("csv", "html", "json", "jsonl", "md"))
        + ", and 3 more"
    )
