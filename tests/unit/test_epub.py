"""EPUB: chapters in the order of the spine, and unreadable books."""

import pytest

from lexicept.corpora.budgets import NothingToRead
from lexicept.corpora.epub import parse_epub
from lexicept.corpora.passages import Section
from support.archives import archive

CONTAINER = (
    '<container xmlns="urn:c"><rootfiles><rootfile full-path="O/b.opf"/></rootfiles></container>'
)
PACKAGE = """<package xmlns="urn:o"><metadata xmlns:dc="urn:d"><dc:title>Birds</dc:title>
<dc:creator>Ann Lee</dc:creator></metadata><manifest>
<item id="a" href="text/a%20b.xhtml" media-type="application/xhtml+xml"/>
<item id="c" href="c.xhtml" media-type="application/xhtml+xml"/>
<item id="i" href="i.png" media-type="image/png"/></manifest>
<spine><itemref idref="c"/><itemref idref="a"/><itemref idref="i"/><itemref idref="none"/></spine>
</package>"""
CHAPTER = "<html><head><title>{0}</title></head><body><h1>{0}</h1><p>{1}</p></body></html>"


def book(**members):
    return archive(
        **{
            "META-INF__container_dot_xml": CONTAINER,
            "O__b_dot_opf": PACKAGE,
            "O__c_dot_xhtml": CHAPTER.format("Cats", "They purr."),
            "O__text__a b_dot_xhtml": CHAPTER.format("Owls", "They hoot."),
        }
        | members
    )


def test_chapters_in_the_order_of_the_spine():
    parsed = parse_epub("a.epub", book())
    assert (parsed.title, parsed.fields) == ("Birds", {"author": "Ann Lee"})
    assert [(section.title, section.text) for section in parsed.sections if section.text] == [
        ("Cats", "They purr."),
        ("Owls", "They hoot."),
    ]
    assert isinstance(parsed.sections[0], Section)


def test_encrypted_and_damaged_books_are_skipped():
    locked = '<encryption xmlns="urn:e"><CipherReference URI="O/c.xhtml"/></encryption>'
    with pytest.raises(NothingToRead, match="encrypted"):
        parse_epub("a.epub", book(**{"META-INF__encryption_dot_xml": locked}))
    with pytest.raises(NothingToRead, match="damaged: no package"):
        parse_epub("a.epub", archive(mimetype="application/epub+zip"))
    with pytest.raises(NothingToRead, match=r"damaged: O/b\.opf"):
        parse_epub("a.epub", book(O__b_dot_opf="<!DOCTYPE a><package/>"))
