"""The command that pairs the dimensions of two indexes: index pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lexicept.cli.common import print_json, print_table, working
from lexicept.cli.declarations import takes

if TYPE_CHECKING:
    from lexicept.interpretation.pairs import Group
    from lexicept.pipelines.pairs import NamedPairs

SHOWN = 12
"""Most members of a group that a line shows."""


@takes("lexicept.pipelines.pairs:index_pairs")
def pairs(
    tokens: Path,
    latents: Path,
    *,
    groups: Literal["synonyms", "senses"] = "synonyms",
    top_k: int = 20,
    as_json: bool = False,
    **options: Any,
) -> None:
    """Pair tokens and latents of two models by the documents that have both.

    A pair is synonymy, polysemy or identity by its conditional probabilities (SAE-SPLADE,
    appendix E).

    Args:
        tokens: index with dimensions that are tokens or words.
        latents: index of the same documents, with dimensions that are latents.
        groups: synonyms: tokens that one latent covers (SAE-SPLADE, Table 8). senses: latents that
            tell a token's meanings apart (Table 9).
        top_k: number of groups, largest first.
    """
    from lexicept.errors import check_count
    from lexicept.interpretation.pairs import senses, synonyms
    from lexicept.pipelines.pairs import index_pairs

    check_count("top_k", top_k)
    with working("pairing dimensions"):
        named = index_pairs(tokens, latents, **options)
    make = synonyms if groups == "synonyms" else senses
    largest = [_named(group, named, groups) for group in make(named.pairs)[:top_k]]
    counts = {str(relation): count for relation, count in named.pairs.counts.items()}
    if as_json:
        print_json({"associated": named.pairs.associated, **counts, "groups": largest})
        return
    lines = [("associated pairs", f"{named.pairs.associated:,}")]
    lines += [(relation, f"{count:,}") for relation, count in counts.items()]
    for group in largest:
        names = [member["name"] for member in group["members"]]
        more = f", … {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append((group["name"], ", ".join(names[:SHOWN]) + more))
    print_table(f"{tokens} and {latents}: {groups}", lines)


def _named(group: Group, found: NamedPairs, groups: str) -> dict[str, Any]:
    """Return a group with names, its members' probabilities and their lift."""
    of_latent = groups == "synonyms"
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
