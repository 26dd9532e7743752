"""Mails: headers, bodies, attachments and mailboxes."""

from email.message import EmailMessage

import pytest

from lexicept.corpora import mail as mail_module
from lexicept.corpora import read_documents
from lexicept.corpora.budgets import NothingToRead
from lexicept.corpora.files import parse_attachment
from lexicept.corpora.mail import parse_mail
from lexicept.corpora.passages import Section
from lexicept.errors import LexiceptWarning


def mail(text="Owls hoot.", **headers):
    message = EmailMessage()
    named = {
        "From": "Ann <ann@a.org>",
        "Subject": "Birds",
        "Date": "Fri, 1 Mar 2024 10:00:00 +0100",
    }
    for name, value in (named | headers).items():
        message[name] = value
    message.set_content(text)
    return message


def parsed(message):
    data = message if isinstance(message, bytes) else bytes(message)
    return parse_mail("a.eml", data, parse_attachment)


def test_the_subject_is_the_title_and_headers_are_fields():
    document = parsed(mail("Eulen rufen: „uhu“ — schön.", Subject="Vögel im März"))
    assert (document.title, document.text) == ("Vögel im März", "Eulen rufen: „uhu“ — schön.")
    assert document.fields["sender"] == "Ann <ann@a.org>"
    assert document.fields["date"].isoformat() == "2024-03-01T10:00:00+01:00"


def test_plain_text_goes_before_html():
    message = mail("plain")
    message.add_alternative("<p>shown</p>", subtype="html")
    assert parsed(message).text == "plain"
    message = mail()
    message.set_content("<title>T</title><p>only <b>this</b></p>", subtype="html")
    assert parsed(message).text == "only this"
    message.set_content("<p>5 €, ő</p>", subtype="html", charset="iso-8859-16")
    assert parsed(message).text == "5 €, ő"


def test_all_texts_side_by_side_are_read():
    """As mailers write a picture between two paragraphs, and lists their footer."""
    message = mail("Here is the plan:")
    message.add_alternative("<p>The plan, again</p>", subtype="html")
    message.make_mixed()
    picture, more = EmailMessage(), EmailMessage()
    picture.set_content(b"\x89", maintype="image", subtype="png", disposition="inline")
    more.set_content("<p>We buy the zebra.</p>", subtype="html")
    message.attach(picture)
    message.attach(more)
    assert [s.text for s in parsed(message).sections] == ["Here is the plan:", "We buy the zebra."]
    raw = b"From: a\nContent-Type: message/rfc822\n\nFrom: b\n\nThe mail inside.\n"
    assert parsed(raw).text == "The mail inside."


def test_attachments_are_sections():
    message = mail()
    message.add_attachment("# Food\n\nMice.", subtype="markdown", filename="food.md")
    message.add_attachment(b"\x00\x01", maintype="image", subtype="png", filename="owl.png")
    assert parsed(message).sections == (Section("Owls hoot."), Section("Mice.", "food.md", ""))


def test_a_mail_in_a_mail_is_read():
    message = mail()
    message.add_attachment(mail("Cats purr.", Subject="Cats"))
    assert "Cats purr." in parsed(message).text


def test_texts_of_wrong_encodings_and_flowed_lines():
    raw = b"From: a\nContent-Type: text/plain; charset=nonsense\n\ncaf\xe9 noir, tr\xe8s bon\n"
    assert "caf\xe9 noir" in parsed(raw).text
    raw = b"From: a\nContent-Type: text/plain; format=flowed\n\nowls \nhoot\nat night\n-- \nAnn\n"
    assert parsed(raw).text == "owls hoot\nat night\n--\nAnn"


@pytest.mark.parametrize("data", [b"cats", b"\n\n", b"a: b\n\ncats"])
def test_texts_that_are_no_mails(data):
    with pytest.raises(NothingToRead, match="no mail"):
        parsed(data)


def test_damaged_headers_and_deep_mails_end_in_no_other_error():
    assert parsed(b"From: =?utf-8?q?=FF?=\nDate: yesterday\nSubject: \n\nowls").text == "owls"
    deep = b"From: a\nContent-Type: message/rfc822\n\n" * 2_000 + b"owls"
    with pytest.raises(NothingToRead, match="too many parts"):
        parsed(deep)


def test_a_large_mail_is_cut_and_the_mails_after_it_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(mail_module, "LARGEST", 200)
    mails = [mail(), mail("\n".join(["owls"] * 100)), mail("Cats.", Subject="Cats")]
    data = "".join(f"From ann Fri Mar  1 10:00:00 2024\n{message}\n\n" for message in mails)
    (tmp_path / "a.mbox").write_text(data)
    with pytest.warns(LexiceptWarning, match="mail 2 is cut after"):
        documents = [*read_documents(tmp_path)]
    assert [document.text[:5] for document in documents] == ["Owls ", "owls\n", "Cats."]


def test_a_mailbox_has_many_mails(tmp_path):
    text = "Cats purr.\n\n>From here on they sleep.\n\nFrom Paris: to Rome."
    mails = [mail(), mail(text, Subject="Cats")]
    data = "".join(f"From ann Fri Mar  1 10:00:00 2024\n{message}\n\n" for message in mails)
    (tmp_path / "a.mbox").write_text(data)
    documents = [*read_documents(tmp_path)]
    assert [(document.id, document.title) for document in documents] == [
        ("a.mbox#1", "Birds"),
        ("a.mbox#2", "Cats"),
    ]
    assert documents[1].text == text.replace(">", "")
