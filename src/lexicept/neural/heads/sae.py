"""The encoder of a sparse autoencoder as a head: dimensions are latents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from lexicept.encoding.head_settings import HeadSettings, read_settings
from lexicept.errors import InputError
from lexicept.neural.heads.base import Head
from lexicept.neural.heads.vocabulary import VocabularyHead
from lexicept.neural.sae.model import SAE
from lexicept.storage.files import write_json
from lexicept.vectors import Floats


class SAEHead(Head):
    """The encoder of a sparse autoencoder: dimensions are latents (SAE-SPLADE, section 3), by
    default with the SAE's k for queries and documents. Raises InputError if the SAE and the inner
    head take states of different sizes.

    Args:
        sae: with the decoder, for ``reconstruct`` alone.
        inner: a language head whose transform is applied to states before the SAE ("Layer 6 + T" in
            SAE-SPLADE, Table 2); rows are dropped.
    """

    def __init__(
        self, sae: SAE, settings: HeadSettings | None = None, inner: VocabularyHead | None = None
    ) -> None:
        super().__init__()
        if inner is not None and inner.d_in != sae.d_in:
            raise InputError(f"an SAE for states of size {sae.d_in} on a head of size {inner.d_in}")
        self.sae = sae
        self.settings = settings or HeadSettings(query_k=sae.k, document_k=sae.k)
        self.inner = None if inner is None else inner.with_rows(inner.rows[:0], inner.bias[:0], [])

    @classmethod
    def of_concepts(cls, sae: SAE) -> SAEHead:
        """Make a head of an SAE that was not trained for ranking, for BM25 weights in an index: idf
        is in the documents' weights, so limits keep queries by impact."""
        return cls(sae, HeadSettings(query_k=sae.k, document_k=sae.k, pruning="impact"))

    def transform(self, states: Tensor) -> Tensor:
        inner = states if self.inner is None else self.inner.transform(states)
        return self.sae.centre(self.sae.normalise(inner))

    @property
    def rows(self) -> Tensor:
        return self.sae.W_enc

    @property
    def bias(self) -> Tensor:
        return self.sae.b_enc

    @property
    def threshold(self) -> Tensor | None:
        return self.sae.threshold

    @property
    def gain(self) -> Tensor:
        return self.sae.scale

    @property
    def autoencoder(self) -> SAE:
        return self.sae

    @property
    def before_autoencoder(self) -> Callable[[Tensor], Tensor] | None:
        return None if self.inner is None else self.inner.transform

    @property
    def directions(self) -> Floats:
        return self.sae.W_dec.float().numpy(force=True)

    def reconstruct(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return normalised input and reconstruction of ``Head.reconstruct``, with the documents'
        k, or the SAE's own if the documents' is None."""
        inner = states if self.inner is None else self.inner.transform(states).detach()
        acts, latents = self.sae.encode(inner, self.settings.document_k)
        return self.sae.normalise(inner), self.sae.decode(acts / self.sae.scale, latents)

    def freeze_unused(self, decoder: bool) -> None:
        if decoder:
            self.sae.W_dec.requires_grad_(False)
            if not self.sae.centred:
                self.sae.b_dec.requires_grad_(False)
        if self.inner is not None:
            self.inner.rows.requires_grad_(False)
            self.inner.bias.requires_grad_(False)

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the SAE, the settings and any inner head into a module folder."""
        folder = Path(output_path)
        self.sae.save(folder)
        if self.inner is not None:
            self.inner.save(str(folder / "inner"))
        config = {**self.get_config_dict(), "inner": self.inner is not None}
        write_json(folder / "config.json", config)

    @classmethod
    def read(cls, folder: Path) -> SAEHead:
        settings, config = read_settings(folder)
        if unknown := set(config) - {"inner"}:
            raise InputError(f"{folder}: no settings of an SAE head: {', '.join(sorted(unknown))}")
        inner = VocabularyHead.read(folder / "inner") if config.get("inner") else None
        return cls(SAE.load(folder), settings, inner)
