// Results: a compact entry each, which opens into its explanation.

import { action, bare, byId, key, make, spelled } from "./common.js";
import { fieldsOf, place } from "./document.js";
import { chosenFields } from "./fields.js";
import { marker, showMarked } from "./feedback.js";
import { explain } from "./marks.js";
import { Refused, ask, asked } from "./server.js";
import { go, state } from "./state.js";

const MOST_CHIPS = 6;
const AS_A_WHOLE = 0.9; // share of a score from where on the chips are not what made it
const WHOLE = "similar as a whole";

/** Show lists of results, one or two side by side. */
export function showLists(found, compare, terms) {
  const results = byId("results");
  results.classList.toggle("compare", compare);
  const asking = new Map(terms.terms.map((term) => [key(term), { ...term, asked: terms.text }]));
  results.replaceChildren(
    ...found.map((list) => {
      const title = compare ? `By ${list.vocabulary}` : "Results";
      list.cards = list.results.map((result) => card(result, list, asking));
      return make(
        "section",
        { class: "list", "aria-label": title },
        make("h2", { class: compare ? "" : "sr" }, title),
        list.results.length || !compare
          ? make("ol", { role: "list" }, ...list.cards)
          : make("p", { class: "dim" }, "No document."),
      );
    }),
  );
  showMarked();
}

function card(result, list, asking) {
  const chips = chipsOf(result, list, asking);
  const why = `why-${list.vocabulary ?? "all"}-${result.rank}`;
  const facts = make("p", { class: "facts" }, place(result), ...fieldsOf(chosenFields(result)));
  const move = list.ranks && moved(result, list.ranks);
  if (move) facts.append(move);
  return make(
    "li",
    { class: "result", "data-id": result.id },
    make(
      "div",
      { class: "head" },
      make(
        "h3",
        {},
        make(
          "button",
          {
            type: "button",
            class: "open",
            click: () => go({ document: result.id }),
            "aria-haspopup": "dialog",
            "data-focus": `document-${result.id}`,
          },
          result.title || result.id,
        ),
      ),
      facts,
    ),
    make("p", { class: "excerpt" }, ...highlighted(result.excerpt, chips)),
    make(
      "div",
      { class: "foot" },
      make("p", { class: "matched" }, ...shownChips(chips)),
      action("Why", () => toggle(result.id), {
        class: "plain tell",
        "aria-expanded": "false",
        "aria-controls": why,
        "aria-label": `Why: ${result.title || result.id}`,
        "data-focus": `why-${result.id}`,
      }),
    ),
    make("div", { class: "detail", id: why, hidden: true }, make("div", { class: "why" }, make("p", { class: "dim" }, "Explaining…"))),
  );
}

/** Where a result was before steering. */
function moved(result, { ranks, most }) {
  const before = ranks.get(result.id);
  if (before === result.rank) return null;
  const [sign, text] =
    before === undefined
      ? ["▲", `from below ${most}`]
      : [before > result.rank ? "▲" : "▼", `from ${before}`];
  return make(
    "span",
    { class: "moved number" },
    make("span", { "aria-hidden": "true" }, `${sign} `),
    make("span", { class: "sr" }, sign === "▲" ? "up " : "down "),
    text,
  );
}

// ---- what matched

/** The words of a result that matched, largest part first: each as a word of the query or by
 * meaning, and once. */
function chipsOf({ matches = [], score }, { vocabulary }, asking) {
  const ownWord = (match) => {
    const term = asking.get(key(match));
    return term ? spelled(Array.from(term.asked), term.spans) : "";
  };
  const chips = [];
  for (const match of matches) {
    const byWord = match.vocabulary === "words";
    // A concept of which no word is known is left to the explanation.
    const text = match.word || (byWord ? ownWord(match) || match.term : "");
    const same = chips.findIndex((chip) => alike(chip.text, text));
    const chip = { text, vocabulary: match.vocabulary, elsewhere: !match.word };
    if (text && same < 0) chips.push(chip);
    else if (text && byWord) chips[same] = chip;
  }
  if (!chips.length) {
    const texts = matches.map((match) => ownWord(match) || bare(match.term, match.dimension));
    for (const text of new Set(texts)) chips.push({ text, vocabulary: "concepts", elsewhere: true });
  }
  const left = matches.reduce((sum, match) => sum - match.score, score);
  if (vocabulary === null && score > 0 && left >= AS_A_WHOLE * score) {
    chips.push({ text: WHOLE, vocabulary: "similarity", elsewhere: true });
  }
  return chips;
}

/** Whether two words are forms of one, as far as their beginnings tell. */
function alike(one, other) {
  const [a, b] = [one.toLowerCase(), other.toLowerCase()].sort((left, right) => left.length - right.length);
  return a === b || (a.length >= 3 && b.startsWith(a.slice(0, 4)));
}

function shownChips(chips) {
  const nouns = { words: "", concepts: " by meaning", similarity: "" };
  const shown = chips.slice(0, MOST_CHIPS).map(({ text, vocabulary, elsewhere }) =>
    make(
      "span",
      {
        class: `term ${vocabulary}${elsewhere ? " elsewhere" : ""}`,
        title: vocabulary === "words" && elsewhere ? "elsewhere in the document" : null,
      },
      text,
      nouns[vocabulary] ? make("span", { class: "sr" }, nouns[vocabulary]) : "",
    ),
  );
  const more = chips.length - MOST_CHIPS;
  if (more > 0) shown.push(make("span", { class: "dim" }, `+${more}`));
  return shown.flatMap((chip, position) => (position ? [make("span", { "aria-hidden": "true", class: "dim" }, " · "), chip] : [chip]));
}

/** A text with the matched words marked. */
function highlighted(text, chips) {
  const vocabularies = new Map(chips.filter(({ elsewhere }) => !elsewhere).map((chip) => [chip.text.toLowerCase(), chip.vocabulary]));
  if (!vocabularies.size) return [text];
  const either = [...vocabularies.keys()].map((word) => word.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|");
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}_])(${either})(?![\\p{L}\\p{N}_])`, "giu");
  return text.split(pattern).map((piece, position) =>
    position % 2 ? make("mark", { class: vocabularies.get(piece.toLowerCase()) ?? "words" }, piece) : piece,
  );
}

// ---- explanations

const isOpen = (id) => state.explainAll || state.explained.includes(id);

/** Open or close the explanation of a result. */
export function toggle(id) {
  const ids = [...new Set([...document.querySelectorAll(".result")].map(({ dataset }) => dataset.id))];
  const open = ids.filter((one) => isOpen(one) !== (one === id));
  go({ explainAll: false, explained: open }, false);
}

/** Show the explanations that are open, the best result first: each may run a model. */
export async function showOpen(found, signal) {
  const button = byId("why-all");
  button.hidden = !found.some(({ results }) => results.length);
  byId("colours").hidden = button.hidden;
  button.setAttribute("aria-pressed", state.explainAll);
  const wanted = found.flatMap(({ vocabulary, results, cards }) =>
    results.map((result, position) => ({ vocabulary, result, item: cards[position] })),
  );
  for (const { result, item } of wanted) {
    const open = isOpen(result.id);
    item.classList.toggle("explained", open);
    item.querySelector(".detail").hidden = !open;
    item.querySelector(".tell").setAttribute("aria-expanded", open);
  }
  wanted.sort((a, b) => a.result.rank - b.result.rank);
  for (const one of wanted) {
    if (isOpen(one.result.id) && !one.item.dataset.asked) await fill(one, signal);
  }
}

async function fill({ vocabulary, result, item }, signal) {
  item.dataset.asked = "";
  const parameters = [...asked(vocabulary), ["document_id", result.id]];
  try {
    const why = await ask("/explain", parameters, signal);
    explain(item, why);
    item.querySelector(".why").append(...further(why), make("p", { class: "actions" }, marker(result), make("span", { class: "dim number" }, `rank ${result.rank}, score ${result.score.toFixed(3)}`)));
    showMarked();
  } catch (error) {
    if (!(error instanceof Refused)) {
      delete item.dataset.asked;
      if (error.name === "AbortError") return;
      throw error;
    }
    // Such as a document that was deleted meanwhile: the other results stand.
    const reason = make("p", { class: "dim" }, `Not explained: ${error.message}`);
    item.querySelector(".why").replaceChildren(reason);
  }
}

/** The second best passage of the document, folded. */
function further({ further: ids }) {
  return (ids ?? []).filter(Boolean).map((id) => {
    const text = make("div", {});
    const load = async ({ target }) => {
      if (!target.open || text.hasChildNodes()) return;
      text.append(make("p", { class: "dim" }, "Loading…"));
      try {
        const passage = await ask("/document", [["document_id", id]]);
        text.replaceChildren(make("p", {}, make("strong", {}, passage.title)), make("p", { class: "excerpt" }, passage.text));
      } catch (error) {
        text.replaceChildren(make("p", { class: "dim" }, error.message));
      }
    };
    return make("details", { class: "further", toggle: load }, make("summary", {}, `The second best passage: ${id}`), text);
  });
}

byId("why-all").addEventListener("click", () => go({ explainAll: !state.explainAll, explained: [] }, false));
