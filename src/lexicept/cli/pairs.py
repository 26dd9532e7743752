"""The command that pairs the dimensions of two indexes: index pairs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexicept.cli.common import JsonOption, option_names, print_json, print_table, working

if TYPE_CHECKING:
    from lexicept.interpretation.pairs import Group
    from lexicept.pipelines.pairs import NamedPairs


class GroupsChoice(StrEnum):
    """Groups of pairs."""

    synonyms = "synonyms"
    senses = "senses"


SHOWN = 12
"""Most members of a group that a line shows."""


def pairs(
    tokens: Annotated[Path, typer.Argument(help="Index whose dimensions are tokens or words.")],
    latents: Annotated[
        Path, typer.Argument(help="Index of the same documents, whose dimensions are latents.")
    ],
    groups: Annotated[
        GroupsChoice,
        typer.Option(
            help="synonyms: tokens that one latent covers (SAE-SPLADE, Table 8). "
            "senses: latents that tell a token's meanings apart (Table 9)."
        ),
    ] = GroupsChoice.synonyms,
    token_vocabulary: Annotated[
        str | None, typer.Option(help="Vocabulary of the first index. Default: its only one.")
    ] = None,
    latent_vocabulary: Annotated[
        str | None, typer.Option(help="Vocabulary of the second index. Default: its only one.")
    ] = None,
    top_k: Annotated[int, typer.Option(min=1, help="Number of groups, largest first.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Pair tokens and latents of two models by the documents that have both.

    A pair is synonymy, polysemy or identity by its conditional probabilities (SAE-SPLADE,
    appendix E).
    """
    from lexicept.interpretation.pairs import senses, synonyms
    from lexicept.pipelines.pairs import index_pairs

    with option_names(), working("pairing dimensions"):
        found = index_pairs(
            tokens,
            latents,
            token_vocabulary=token_vocabulary,
            latent_vocabulary=latent_vocabulary,
        )
    make = synonyms if groups == GroupsChoice.synonyms else senses
    shown = [_named(group, found, groups) for group in make(found.pairs)[:top_k]]
    if as_json:
        counts = {str(relation): count for relation, count in found.pairs.counts.items()}
        print_json({"associated": found.pairs.associated, **counts, "groups": shown})
        return
    rows = [("associated pairs", f"{found.pairs.associated:,}")]
    rows += [(relation, f"{count:,}") for relation, count in found.pairs.counts.items()]
    for group in shown:
        names = [member["name"] for member in group["members"]]
        rest = f", … {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        rows.append((group["name"], ", ".join(names[:SHOWN]) + rest))
    print_table(f"{tokens} and {latents}: {groups.value}", rows)


def _named(group: Group, found: NamedPairs, groups: GroupsChoice) -> dict[str, Any]:
    """Return a group with names, its members' probabilities and their lift."""
    of_latent = groups == GroupsChoice.synonyms
    own, others = found.latents, found.tokens
    if not of_latent:
        own, others = others, own
    members = [
        {
            "name": others[pair.token if of_latent else pair.latent],
            "P(latent|token)": round(pair.latent_given_token, 4),
            "P(token|latent)": round(pair.token_given_latent, 4),
            "documents": pair.both,
            "lift": round(pair.lift, 2),
        }
        for pair in group.pairs
    ]
    return {"dimension": group.dimension, "name": own[group.dimension], "members": members}
