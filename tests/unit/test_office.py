"""Office documents: text, headings, tables and fields, and harmful files."""

import pytest

from lexicept.corpora import read_documents
from lexicept.corpora.budgets import NothingToRead
from lexicept.corpora.office import parse_office
from lexicept.corpora.passages import Section
from support.archives import archive

W = 'xmlns:w="urn:w" xmlns:r="urn:r"'
RELATIONS = '<Relationships xmlns="urn:p">{}</Relationships>'
CORE = """<cp:coreProperties xmlns:cp="urn:c" xmlns:dc="urn:dc" xmlns:dcterms="urn:t">
<dc:title>{}</dc:title><dc:creator>Ann Lee</dc:creator>
<dcterms:modified>2024-03-01T10:00:00Z</dcterms:modified></cp:coreProperties>"""


def relations(**targets):
    return RELATIONS.format(
        "".join(f'<Relationship Id="{i}" Target="{target}"/>' for i, target in targets.items())
    )


def docx(body, title="", **members):
    styles = f"""<w:styles {W}><w:style w:styleId="Titel1"><w:name w:val="heading 1"/></w:style>
    <w:style w:styleId="Own"><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style></w:styles>"""
    return archive(
        word__document_dot_xml=f"<w:document {W}><w:body>{body}</w:body></w:document>",
        word__styles_dot_xml=styles,
        docProps__core_dot_xml=CORE.format(title),
        **members,
    )


def paragraph(text, style=""):
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{styled}<w:r><w:t>{text}</w:t></w:r></w:p>"


def test_headings_and_fields_of_a_text_document():
    body = paragraph("Owls", "Titel1") + paragraph("They hoot.") + paragraph("Food", "Own")
    parsed = parse_office("a.docx", docx(body + paragraph("Mice &amp; voles.")))
    assert (parsed.title, parsed.text) == ("Owls", "They hoot.\n\nFood\n\nMice & voles.")
    assert parsed.sections == (Section("They hoot."), Section("Mice & voles.", "Food", "food"))
    assert parsed.fields == {"author": "Ann Lee", "modified": "2024-03-01T10:00:00Z"}


def test_a_reader_sees_no_deletions_and_no_hidden_text():
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>"
    deleted = "<w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
    inserted = "<w:ins><w:r><w:t>new</w:t></w:r></w:ins>"
    link = "<w:hyperlink><w:r><w:t> link</w:t><w:tab/><w:t>end</w:t></w:r></w:hyperlink>"
    parsed = parse_office("a.docx", docx(f"<w:p>{hidden}{deleted}{inserted}{link}</w:p>"))
    assert parsed.text == "new link end"


def test_a_table_has_a_line_for_each_row():
    row = "<w:tr><w:tc>{}</w:tc><w:tc>{}</w:tc></w:tr>"
    rows = row.format(paragraph("owl"), paragraph("hoots")) + row.format(
        paragraph("cat"), paragraph("purrs") + paragraph("loudly")
    )
    rows += row.format(paragraph("eats"), f"<w:tbl>{row.format(paragraph('mice'), '')}</w:tbl>")
    text = parse_office("a.docx", docx(f"<w:tbl>{rows}</w:tbl>")).text
    assert text == "owl\thoots\ncat\tpurrs loudly\neats\tmice"


def test_notes_stand_at_the_end():
    notes = f'<w:footnotes {W}><w:footnote w:type="separator"><w:p/></w:footnote>'
    notes += f"<w:footnote>{paragraph('A note.')}</w:footnote></w:footnotes>"
    data = docx(
        paragraph("Text."),
        word__footnotes_dot_xml=notes,
        word___rels__document_dot_xml_dot_rels=relations(r1="footnotes.xml"),
    )
    assert parse_office("a.docx", data).text == "Text.\n\nA note."


def test_slides_in_order():
    shape = """<p:sp><p:nvSpPr><p:nvPr><p:ph type="{}"/></p:nvPr></p:nvSpPr>
    <p:txBody><a:p><a:r><a:t>{}</a:t></a:r><a:r><a:t>!</a:t></a:r><a:br/></a:p></p:txBody></p:sp>"""
    slide = (
        '<p:sld xmlns:p="urn:p" xmlns:a="urn:a"><p:cSld><p:spTree>{}</p:spTree></p:cSld></p:sld>'
    )
    data = archive(
        ppt__presentation_dot_xml='<p:presentation xmlns:p="urn:p" xmlns:r="urn:r"><p:sldIdLst>'
        '<p:sldId id="256" r:id="r2"/><p:sldId id="257" r:id="r1"/></p:sldIdLst></p:presentation>',
        ppt___rels__presentation_dot_xml_dot_rels=relations(
            r1="slides/slide1.xml", r2="/ppt/slides/slide2.xml"
        ),
        ppt__slides__slide1_dot_xml=slide.format(shape.format("body", "They purr.")),
        ppt__slides__slide2_dot_xml=slide.format(
            shape.format("title", "Owls") + shape.format("body", "They hoot.")
        ),
    )
    parsed = parse_office("a.pptx", data)
    assert (parsed.title, parsed.text) == ("Owls!", "They hoot.!\n\nslide 2\n\nThey purr.!")


def test_cells_are_shown_as_a_person_sees_them():
    cells = [
        '<c t="s"><v>1</v></c>',
        '<c s="1"><v>45352</v></c>',
        '<c s="2"><v>0.125</v></c>',
        '<c s="3"><v>45352.75</v></c>',
        '<c s="4"><v>0.5</v></c>',
        '<c t="b"><v>1</v></c>',
        "<c><v>12.0</v></c>",
        '<c t="inlineStr"><is><t>mice</t></is></c>',
        '<c t="e"><v>#DIV/0!</v></c>',
        '<c s="1"><v>-700000</v></c>',
        '<c s="5"><v>1234</v></c>',
        '<c t="s"><v>99</v></c>',
    ]
    sheet = (
        f'<worksheet xmlns="urn:x"><sheetData><row>{"".join(cells)}</row></sheetData></worksheet>'
    )
    book = '<workbook xmlns="urn:x" xmlns:r="urn:r"><sheets><sheet name="Birds" r:id="r1"/>'
    book += '<sheet name="Secret" state="hidden" r:id="r1"/></sheets></workbook>'
    styles = (
        '<styleSheet xmlns="urn:x"><numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm hh:mm"/>'
        '<numFmt numFmtId="165" formatCode="#,##0_m"/>'
    )
    styles += '</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="10"/>'
    styles += '<xf numFmtId="164"/><xf numFmtId="20"/><xf numFmtId="165"/></cellXfs></styleSheet>'
    data = archive(
        xl__workbook_dot_xml=book,
        xl___rels__workbook_dot_xml_dot_rels=relations(
            r1="worksheets/sheet1.xml", r2="sharedStrings.xml", r3="styles.xml"
        ),
        xl__worksheets__sheet1_dot_xml=sheet,
        xl__sharedStrings_dot_xml='<sst xmlns="urn:x"><si><t>a</t></si>'
        "<si><r><t>ow</t></r><r><t>ls</t></r><rPh><t>read</t></rPh></si></sst>",
        xl__styles_dot_xml=styles,
    )
    parsed = parse_office("a.xlsx", data)
    text = "owls\t2024-03-01\t12.5%\t2024-03-01 18:00\t12:00\tTRUE\t12\tmice\t#DIV/0!"
    text += "\t-700000\t1234"
    assert parsed.sections[1] == Section(text, "Birds", "birds")
    assert "Secret" not in parsed.text


OPEN = """<office:document-content xmlns:office="urn:o" xmlns:text="urn:t" xmlns:table="urn:b">
<office:body><office:{0}>{1}</office:{0}></office:body></office:document-content>"""


def test_open_document():
    body = '<text:h text:outline-level="1">Owls</text:h><text:p>They<text:s/>hoot'
    body += "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>often"
    body += "</text:p></text:note-body></text:note>.</text:p><text:tracked-changes><text:p>old"
    body += "</text:p></text:tracked-changes><text:p>By<text:text-box><text:p>night</text:p>"
    body += "</text:text-box>now</text:p>"
    meta = '<office:document-meta xmlns:office="urn:o" xmlns:dc="urn:dc"><office:meta>'
    meta += "<dc:title>On owls</dc:title></office:meta></office:document-meta>"
    data = archive(content_dot_xml=OPEN.format("text", body), meta_dot_xml=meta)
    parsed = parse_office("a.odt", data)
    assert (parsed.title, parsed.text) == ("On owls", "Owls\n\nThey hoot often.\n\nBy night now")


def test_repeated_cells_of_a_sheet_are_bounded():
    cell = '<table:table-cell table:number-columns-repeated="{}">{}</table:table-cell>'
    row = cell.format(2, "<text:p>owl</text:p>") + cell.format(1_000_000, "")
    row = f"<table:table-row>{row}</table:table-row>"
    body = (
        f'<table:table table:name="Birds">{row}</table:table><s:style s:name="ta2" xmlns:s="urn:s">'
    )
    body += '<s:table-properties table:display="false"/></s:style>'
    body += f'<table:table table:name="Secret" table:style-name="ta2">{row}</table:table>'
    data = archive(content_dot_xml=OPEN.format("spreadsheet", body))
    assert parse_office("a.ods", data).text == "Birds\n\nowl\towl"


BILLION = '<!DOCTYPE a [<!ENTITY b "cats"><!ENTITY c "&b;&b;">]><a>&c;</a>'
EXTERNAL = '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'


@pytest.mark.parametrize("xml", [BILLION, EXTERNAL, "<a>", "<a/><b/>", "<a>" * 600, "\xff", "cats"])
def test_damaged_and_hostile_xml_is_skipped(xml):
    with pytest.raises(NothingToRead, match=r"damaged: word/document\.xml"):
        parse_office("a.docx", archive(word__document_dot_xml=xml))


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.odt"])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "encrypted, or of an old format"),
        (b"cats", "damaged: File is not a zip file"),
        (docx(paragraph("owls"))[:300], "damaged"),
        (archive(other="cats"), "damaged: .* is missing"),
    ],
)
def test_files_without_a_document_are_skipped(name, text, reason):
    with pytest.raises(NothingToRead, match=reason):
        parse_office(name, text)


def test_an_encrypted_open_document_is_skipped():
    manifest = '<m:manifest xmlns:m="urn:m"><m:file-entry><m:algorithm m:algorithm-name="AES"/>'
    manifest += "</m:file-entry></m:manifest>"
    data = archive(**{"META-INF__manifest_dot_xml": manifest, "content_dot_xml": "?"})
    with pytest.raises(NothingToRead, match="encrypted"):
        parse_office("a.odt", data)


def test_a_bomb_is_skipped_and_other_files_are_read(tmp_path):
    (tmp_path / "bomb.docx").write_bytes(docx(paragraph("cats " * 4_000_000)))
    (tmp_path / "owls.docx").write_bytes(docx(paragraph("They hoot.")))
    with pytest.warns(match=r"too many decompressed bytes for the size: bomb\.docx"):
        documents = list(read_documents(tmp_path))
    assert [(document.id, document.text) for document in documents] == [("owls.docx", "They hoot.")]
