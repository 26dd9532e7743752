"""HTML as browsers show it: references, encodings, hidden elements, <main>, titles, XHTML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora import budgets, html
from lexicept.corpora.budgets import Budget, NothingToRead
from lexicept.corpora.html import parse_html


def text_of(page: str | bytes, path: str = "a.html") -> str:
    return parse_html(path, page.encode() if isinstance(page, str) else page).text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("caf&#233; &#x1F600; it&#39;s A&#38;B", "café 😀 it's A&B"),
        ("a&#133;b &#150; &#12354;&#x4E2D", "a…b – あ中"),
        ("1&#1;2&#x1f;3", "1 2 3"),
        ("&amp;#233; &eacute", "&#233; é"),
    ],
)
def test_references_are_characters(page, text):
    assert text_of(page) == text


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("shift_jis", "cp932", "①髙橋さんの㈱楽器"),
        ("iso-2022-jp", "iso2022_jp", "楽器の修理"),
        ("euc-kr", "cp949", "똠방각하 바이올린"),
        ("big5", "big5hkscs", "着嘅喺小提琴"),
        ("iso-8859-8-i", "iso8859_8", "תיקון כינור"),
        ("iso-8859-1", "cp1252", "Le cœur de l’atelier, 3 €"),
        ("cp866", "cp866", "Привет"),
    ],
)
def test_labels_are_those_of_the_encoding_standard(label, codec, text):
    for declared in (f"<meta charset={label}>", f'<?xml version="1.0" encoding="{label}"?>'):
        assert text_of(f"{declared}<p>{text}".encode(codec)) == text


CYRILLIC = "Привет".encode("cp1251")


@pytest.mark.parametrize(
    "before",
    [
        b"<meta charset=windows-1251>",
        b'<META HTTP-EQUIV=content-type CONTENT="text/html; charset=windows-1251">',
        b"<!-- <meta charset=koi8-r> --><meta charset=windows-1251>",
        b"<title>" + CYRILLIC + b"</title><meta charset='WINDOWS-1251 '>",
    ],
)
def test_declarations_of_encodings(before):
    assert text_of(before + b"<p>" + CYRILLIC) == "Привет"


def test_utf_8_where_the_declaration_is_wrong_or_a_byte_damaged():
    assert text_of("<meta charset=utf-16><p>größer") == "größer"
    assert text_of("<meta charset=iso-8859-1><p>größer") == "größer"
    assert (
        text_of("<meta charset=utf-8><p>Müller, Köln ".encode() + b"\x98") == "Müller, Köln \ufffd"
    )
    assert text_of(b"<meta charset=utf-8><p>" + "Ремонт скрипок в центре".encode("cp1251")) == (
        "Ремонт скрипок в центре"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p hidden>a</p><p hidden=until-found>b</p><p hidden=x>c", "b"),
        ("<dialog>a</dialog><dialog open>b</dialog><p popover>c", "b"),
        ("<details><summary>a</summary>b</details>", "a\n\nb"),
        ("<template>a</template><p><noscript>b</noscript><script>c</script><style>d</style>e", "e"),
        ("<video>a</video><audio>b</audio><iframe>c</iframe><datalist><option>d</datalist>e", "e"),
        ("<object>a</object><canvas>b</canvas>c", "a b c"),
        ("<math><semantics><mi>x</mi><annotation>\\x</annotation></semantics></math>", "x"),
        ("a<svg><title>b</title><desc>c</desc><text>d</text><defs><text>e</defs></svg>f", "a d f"),
        ("<div><template shadowrootmode=open>a <slot></slot></template>b</div>", "a b"),
        ("<ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp>字<rt>じ</rt></ruby>を", "漢字を かんじ"),
        ("w<b>o</b>r<wbr>d <q>q</q> <del>d</del><s>s</s>", "word q ds"),
        ("<pre>a  b\n  c<br>d</pre>e", "a  b\n  c\nd\n\ne"),
        ("<textarea>a</textarea><select><option>b<option>c</select>", "a\n\nb\n\nc"),
        ("<xmp><b></xmp><plaintext><p>", "<b>\n\n<p>"),
        ("<img alt='a badger'>x<input type=image alt=go><input alt=no><img>", "a badger x go"),
        ("<map><area alt=Kitchen></map>", "Kitchen"),
        ("<button>a</button><button>b</button>", "a b"),
        ("<table><caption>a</caption><tr><td>b<td>c</table>", "a\n\nb\n\nc"),
    ],
)
def test_elements_show_what_browsers_show(page, text):
    assert text_of(page) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<main></main><article>a b</article>", "a b"),
        ("<main hidden>a b c</main><main>d</main>", "d"),
        ("<main>a</main><article>b c d</article>", "a\n\nb c d"),
        ("<main>a b</main><p>c</p><main>d</main>", "a b\n\nd"),
        ("<main>a<main>b</main>c</main>d", "a\n\nb\n\nc"),
        ("<header>a b c</header><main>d</main><footer>e f g</footer>", "d"),
        ("<header>a</header><nav>b</nav><p>c", "a\n\nc"),
    ],
)
def test_the_text_is_that_of_main_unless_more_is_outside(page, text):
    assert text_of(page) == text


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("<svg><title>a</title></svg><title>b  c</title>x", "b c"),
        ("<svg><title>a</title></svg><h1>b</h1>x", "b"),
        ("<title></title><h1>a<br>b</h1>x", "a b"),
        ("<title>caf&#233;</title><body><title>no</title>x", "café"),
    ],
)
def test_the_title_is_the_first_of_html(page, title):
    assert parse_html("a.html", page.encode()).title == title


def test_xhtml_is_xml_where_it_is_well_formed():
    page = """<html xmlns="http://www.w3.org/1999/xhtml"><head><title/><script src="x"/></head>
    <body><div/><h1>T&eacute;</h1><p><![CDATA[a < b & c]]>&nbsp;d</p></body></html>"""
    for path, begin in (("a.xhtml", ""), ("a.html", '<?xml version="1.0"?>')):
        parsed = parse_html(path, (begin + page).encode())
        assert (parsed.title, parsed.text) == ("Té", "a < b & c d")
    assert text_of("<p>a<br>b", "a.xhtml") == "a\n\nb"
    page = '<!DOCTYPE p [<!ENTITY e SYSTEM "file:///etc/passwd">]><p>&e;</p>'
    assert "root:" not in text_of(page, "a.xhtml")
    assert text_of("<a>" * 5_000 + "x" + "</a>" * 5_000, "a.xhtml") == "x"


def test_few_tags_that_stand_for_many_elements_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "SECONDS", 0.02)
    page = "".join(f"<b a{index}><p>" for index in range(20_000))
    with pytest.raises(NothingToRead, match="too many elements for its size"):
        text_of(page)
    assert text_of("<div>" * 10_000 + "x") == "x"
    monkeypatch.setattr(budgets, "SECONDS", 0.0)
    (tmp_path / "a.html").write_text("")
    with pytest.raises(NothingToRead, match="slow, over 0 seconds"):
        Budget(str(tmp_path / "a.html")).run("a.html", lambda: text_of("<p>a" * 100_000))


@given(st.text("<>/!-ab h1p&#;\x01\x02\"'=", max_size=80))
def test_any_text_is_html(text):
    parsed = parse_html("a.html", b"<body>" * 9 + text.encode())
    assert not set("\x01\x02") & set(parsed.text)
    assert all(s.title in parsed.text or s.title == parsed.title for s in parsed.sections)
