"""A folder of everyday files."""

from collections.abc import Sequence
from pathlib import Path

from fpdf import FPDF

OWLS = "Owls hunt at night. " * 40
EAGLES = "Eagles hunt by day. " * 40


def write_pdf(
    path: Path, pages: Sequence[str], title: str = "", password: str | None = None
) -> None:
    """Write a PDF with a page for each text."""
    pdf = FPDF()
    pdf.set_font("Helvetica", size=12)
    pdf.set_title(title)
    if password is not None:
        pdf.set_encryption(owner_password="owner", user_password=password)
    for text in pages:
        pdf.add_page()
        pdf.multi_cell(0, 8, text)
    pdf.output(str(path))


def write_files(folder: Path) -> Path:
    """Write two PDFs, ten Markdown files with front matter, a CSV and a Latin-1 text."""
    (folder / "notes").mkdir(parents=True)
    write_pdf(folder / "birds.pdf", [OWLS, EAGLES], "Birds")
    write_pdf(folder / "fish.pdf", ["Salmon swim upstream."])
    for i in range(10):
        animal = ("cat", "dog")[i % 2]
        front = f"---\ntitle: Note {i}\nyear: {2015 + i}\ntags: [{animal}, pets]\n---\n"
        text = f"{front}# Note {i}\n\nThe {animal} of note {i}.\n"
        (folder / "notes" / f"{i}.md").write_text(text)
    (folder / "stock.csv").write_text("name,price\nbowl,3\ncollar,7.5\n")
    (folder / "brief.txt").write_bytes("Die Küche ist größer.".encode("latin-1"))
    return folder
