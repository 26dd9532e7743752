"""Text formats with marks: what a reader sees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexicept.corpora.markup import EXTENSIONS, parse_markup

MDX = """import { Chart } from "./chart"
export const year = 2024

# Owls

<Chart year={year}>They **hoot**.</Chart>

```js
import x from "y"
```
"""
TEX = r"""\documentclass[a4]{article}
\title{On owls}
\begin{document}\maketitle
\section{Food} % a comment
Owls eat \emph{mice}~\cite{lee} at 50\% of nights.

\begin{itemize}\item voles\end{itemize}
\end{document}
after"""
ADOC = """= Owls
:toc:
// a comment

.Food
They eat *mice* and https://a.org[voles].

== Night
----
code
----
"""
ORG = """#+TITLE: On owls
* TODO Food                :birds:
:PROPERTIES:
:ID: 1
:END:
They eat *mice* and [[https://a.org][voles]].
# a comment
** Night
They hoot.
"""
SRT = """1
00:00:01,000 --> 00:00:02,000
<i>They hoot</i>

2
00:00:02,000 --> 00:00:03,000
They hoot

3
00:00:03,000 --> 00:00:04,000
at &amp; in
the night.
"""


@pytest.mark.parametrize(
    ("extension", "text", "title", "sections"),
    [
        (".mdx", MDX, "Owls", [("", 'They hoot.\n\nimport x from "y"')]),
        (".tex", TEX, "On owls", [("", ""), ("Food", "Owls eat mice  at 50% of nights.\n\nvoles")]),
        (".adoc", ADOC, "Owls", [("", "Food\nThey eat mice and voles."), ("Night", "code")]),
        (
            ".org",
            ORG,
            "On owls",
            [("Food", "They eat mice and voles."), ("Food › Night", "They hoot.")],
        ),
        (".srt", SRT, "", [("", "They hoot\nat & in the night.")]),
        (".vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nowls", "", [("", "owls")]),
    ],
)  # fmt: skip
def test_the_text_that_a_reader_sees(extension, text, title, sections):
    parsed = parse_markup(extension, text)
    assert parsed.title == title
    shown = [(s.title, s.text.strip()) for s in parsed.sections]
    assert [s for s in shown if s[1]] == [s for s in sections if s[1]]


@given(st.sampled_from(EXTENSIONS), st.text("a {}[]<>\\*=_~-:#%\n1,.>`|TODO", max_size=200))
def test_any_text_is_read(extension, text):
    parse_markup(extension, text)
