// Relevance feedback: results that are marked as relevant add to the query.

import { action, byId } from "./common.js";
import { filtering } from "./fields.js";
import { ask } from "./server.js";
import { go, state } from "./state.js";
import { spelledOut } from "./terms.js";

const FIRST = 3; // results that feedback takes for relevant

let fed = new Set(state.relevant.length ? state.added.keys() : []); // what feedback has added
let complain = () => {};

/** Call a function with an error and what to try again. */
export function onProblem(show) {
  complain = show;
}

/** A button that marks a result as relevant. */
export function marker({ id }) {
  return action("More like this", () => toggle(id), {
    class: "plain mark",
    "aria-pressed": "false",
    "data-id": id,
    "data-focus": `mark-${id}`,
    title: "Relevant: add its largest words and concepts to the query",
  });
}

/** Show which results are marked as relevant. */
export function showMarked() {
  for (const button of document.querySelectorAll(".mark")) {
    const marked = state.relevant.includes(button.dataset.id);
    button.setAttribute("aria-pressed", marked);
    button.textContent = marked ? "✓ Relevant" : "More like this";
  }
}

function toggle(id) {
  const marked = state.relevant.includes(id);
  feed(marked ? state.relevant.filter((one) => one !== id) : [...state.relevant, id]);
}

/** Search again with what documents add to the query; null takes the first results. */
async function feed(relevant) {
  const kept = [...state.added].filter(([name]) => !fed.has(name));
  if (relevant !== null && !relevant.length) {
    fed = new Set();
    go({ relevant, added: new Map(kept) });
    return;
  }
  const vocabulary = ["words", "concepts"].includes(state.mode) ? [["vocabulary", state.mode]] : [];
  const like = state.like === null ? [] : [["like", state.like]];
  const documents = relevant === null ? [["top_k", FIRST], ...filtering()] : relevant.map((id) => ["document_id", id]);
  try {
    const { terms } = await ask("/feedback", [["query", state.query], ...like, ...vocabulary, ...documents]);
    for (const term of terms) spelledOut.set(`${term.vocabulary}:${term.dimension}`, term.term);
    const found = terms.map((term) => [`${term.vocabulary}:${term.dimension}`, term.weight]);
    const added = new Map([...found, ...kept]);
    fed = new Set(found.map(([name]) => name));
    kept.forEach(([name]) => fed.delete(name));
    go({ relevant: relevant ?? [], added });
  } catch (error) {
    complain(error, () => feed(relevant));
  }
}

byId("feedback").querySelector("button").addEventListener("click", () => feed(null));
