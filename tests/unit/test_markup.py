"""Text formats with marks: the text shown to a reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora.markup import EXTENSIONS, parse_markup
from lexicept.corpora.passages import Parsed

TEX = r"""\documentclass[a4paper]{article}
\title{Owls \& \emph{friends}}\author{Ada}\date{2024-03-05}
\begin{document}\maketitle
\section{M\'ethods\label{s}} Caf\'e, \"{o}, Stra\ss{}e, \c{c}a \textbf{bold \emph{nested}}
$E=mc^2 \alpha$ \cite[p.~2]{foo} 50\% of \url{http://a.b/c}. % comment
\begin{itemize}\item One \item[x] Two\end{itemize}
\footnote{A note.} \href{http://x}{link} ``quoted'' --- a~b \mycmd{kept}
\begin{tabular}{ll} a & b \\ c & d \end{tabular}
\begin{figure}[h]\includegraphics[width=3cm]{x.png}\caption{Cap}\end{figure}\input{/etc/passwd}
\subsection*{Deep {\bf x}} \verb|co_de|
\end{document} after"""

ORG = """#+TITLE: Owl notes
#+AUTHOR: Ada
#+DATE: <2024-03-05>
#+OPTIONS: toc:nil
* TODO [#A] First :tag:
:PROPERTIES:
:ID: 5
:END:
Some *bold* and /italic/, =code=, [[https://x.y][a link]], a*b*c 2/3/4.
# comment
- [ ] one
| a | b |
|---+---|
| c | d |
** Second
#+BEGIN_SRC python
print("x")
#+END_SRC
#+BEGIN_COMMENT
secret
#+END_COMMENT
"""

ADOC = """= Owl guide
Ada Lovelace <ada@x.y>
v1.0, 2024-03-05
:product: Hooter

Intro of {product} with *bold*, _it_, `mono`, snake_case_name.
// comment
////
hidden
////
== First
.Block title
[source,python]
----
print("x")
----
image::owl.png[An owl,200] see https://x.y[the site], <<sec,that>> and link:a.html[here].
* one
|===
|a |b
|===
include::other.adoc[]
=== Second
Body.
"""

MDX = """---
title: Owl page
---
import X from './x'
export const a = 1

# Hello

<Tab title="Linux">

Run **this** {props.x} {"now"}.

</Tab>

```js
import y from 'z'
```

{/* comment */}
Text <Badge kind={x => x > 1}>new</Badge> `{code}`
"""


def read(parsed: Parsed) -> tuple[str, dict[str, str], list[tuple[str, str]]]:
    """Return the title, the fields, and the titles and texts of sections with text."""
    sections = [(section.title, section.text) for section in parsed.sections if section.text]
    return parsed.title, dict(parsed.fields), sections


STATED = {"author": "Ada", "date": "2024-03-05"}


def test_latex():
    title, fields, ((first, text), second) = read(parse_markup(".tex", TEX))
    assert (title, fields, first) == ("Owls & friends", STATED, "Méthods")
    assert " ".join(text.split()) == (
        "Café, ö, Straße, ça bold nested E=mc^2 α 50% of http://a.b/c. One x Two A note. link "
        '"quoted" – a b kept a b c d Cap'
    )
    assert "a\tb\nc\td" in text
    assert second == ("Méthods › Deep x", "co_de")


def test_org():
    assert read(parse_markup(".org", ORG)) == (
        "Owl notes",
        STATED,
        [
            ("First", "Some bold and italic, code, a link, a*b*c 2/3/4.\n\none\na\tb\n\nc\td"),
            ("First › Second", 'print("x")'),
        ],
    )


def test_asciidoc():
    title, fields, sections = read(parse_markup(".adoc", ADOC))
    assert (title, fields) == ("Owl guide", {**STATED, "author": "Ada Lovelace"})
    assert [(name, " ".join(text.split())) for name, text in sections] == [
        ("", "Intro of Hooter with bold, it, mono, snake_case_name."),
        ("First", 'Block title print("x") An owl see the site, that and here. one a b'),
        ("First › Second", "Body."),
    ]


def test_mdx():
    title, _, sections = read(parse_markup(".mdx", MDX))
    assert title == "Owl page"
    assert sections == [
        ("Hello", "Linux\n\nRun this  now.\n\nimport y from 'z'\n\nText new {code}")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "1\n00:00:01,000 --> 00:00:02,000\n<i>Hello</i> there\n\n2\n00:00:03,000 --> 00:00:04,000\n"
        "{\\an8}How are\r\nyou?\n",
        "1\n00:00:01,000 --> 00:00:02,000\nHello there\n\n2\n00:00:02,000 --> 00:00:03,000\n"
        "Hello there\nHow are\n\n3\n00:00:03,000 --> 00:00:04,000\nHow&#32;are\nyou?",
        "WEBVTT - x\n\nNOTE hidden\nline\n\nid\n00:01.000 --> 00:02.000 align:start\n<v Bob>Hello "
        "<c.x>there</c>\n\n00:03.000 --> 00:04.000\nHow are\nyou?\n",
    ],
)
def test_subtitles(text):
    assert parse_markup(".srt", text).text == "Hello there\nHow are\nyou?"


WORDS = st.text(st.characters(categories=["L"], max_codepoint=0x24F), min_size=1)


def test_words_that_look_like_marks_stay():
    for extension, text, expected in (
        (".srt", "1\n00:01 --> 00:02\nHi\nNOTE it\n\n2\n00:03 --> 00:04\nBye", "Hi NOTE it Bye"),
        (".mdx", "You can\nimport it.\nOr\nexport it.\n", "You can import it. Or export it."),
        (".tex", 'a \\url{b%C3} "%d"% no\n c% no\n%no\nd', 'a b%C3 "%d" cd'),
    ):
        assert parse_markup(extension, text).text.split() == expected.split()


@pytest.mark.parametrize("extension", EXTENSIONS)
@given(st.text("ab \n*=_~`'\"\\{}[]<>|+-#:./!,%$&@1\t\r\x02", max_size=60))
def test_no_mark_of_headings_stays(extension, text):
    assert "\x02" not in parse_markup(extension, text).text


@pytest.mark.parametrize("extension", EXTENSIONS)
@given(st.lists(WORDS, min_size=1))
def test_plain_words_stay(extension, words):
    assert parse_markup(extension, " ".join(words)).text.split() == " ".join(words).split()


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize(
    "unit", ["{", "\\cite{", "\\item[", "[[", "<A ", "*a ", "|", "image::[", "{a"]
)
def test_unclosed_marks_take_no_square_of_time(extension, unit):
    """Regular expressions can't be interrupted: the test would end at its time limit."""
    parse_markup(extension, unit * 1_000)
