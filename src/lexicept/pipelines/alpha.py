"""RRA's α for an opened index, on queries that are made or that a language model writes."""

from __future__ import annotations

from lexicept.errors import require
from lexicept.evaluation.alpha import AlphaChoice, KnownItems, choose_index_alpha
from lexicept.index.impacts import RRASettings
from lexicept.index.reader import IndexReader
from lexicept.progress import Progress, reporting

GENERATING = ("torch", "transformers")
"""The packages that a generator of queries needs."""


def choose(
    reader: IndexReader, settings: RRASettings, generator: str | None, progress: bool | Progress
) -> AlphaChoice:
    """Choose α as ``Index.choose_alpha`` says; the settings' own α is ignored.

    Raises:
        InputError: the extra ``train``, which a generator needs, is not installed; or what
            ``evaluation.alpha.choose_alpha`` refuses.
    """
    items = None
    if generator is not None:
        require("train", *GENERATING)
        from lexicept.training.candidates.query_generation import generate_known_items

        with reporting(progress) as shown:
            sources, texts = generate_known_items(
                generator, len(reader), reader.stored, reader.path.parent, progress=shown
            )
        items = KnownItems(sources, reader.query_vectors(texts))
    return choose_index_alpha(reader, settings.iterations, settings.transform, items)


def rra_settings(
    reader: IndexReader, alpha: float | str, iterations: int, transform: str
) -> RRASettings:
    """Return RRA's settings, with α chosen where it is "auto". Raises InputError for bad ones."""
    if alpha == "auto":
        alpha = choose_index_alpha(reader, iterations, transform).alpha
    return RRASettings(float(alpha), iterations, transform)
