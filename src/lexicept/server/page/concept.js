// A concept in a dialog: its words, examples, documents and neighbours.

import { action, byId, count, indexed, make, meter } from "./common.js";
import { ask } from "./server.js";
import { asking, go, state } from "./state.js";
import { addingWeight, steering, termOf } from "./terms.js";

const DETECTION = "how well the name tells words on which it is active from others, in texts held out of naming";

let opener = null; // what the focus goes back to when a dialog is closed

/** A button that opens a concept. */
export function opening(number, text, focus, style = "term concepts") {
  return action(text, () => go({ concept: number }), {
    class: style,
    "aria-haspopup": "dialog",
    "data-focus": focus,
  });
}

/** Open a dialog, and remember what the focus was on. */
export function openDialog(dialog, title) {
  if (!dialog.open) {
    opener = document.activeElement?.dataset?.focus ?? null;
    dialog.showModal();
  }
  title.focus();
}

/** Let a dialog close by its button, beside it, and by the browser's own means. */
export function closing(dialog, changes) {
  dialog.addEventListener("close", () => {
    const [name] = Object.keys(changes);
    if (state[name] !== null) go(changes);
    if (opener) document.querySelector(`[data-focus="${CSS.escape(opener)}"]`)?.focus();
  });
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  });
}

export async function showConcept() {
  const dialog = byId("concept");
  if (state.concept === null) {
    if (dialog.open) dialog.close();
    return;
  }
  const number = state.concept;
  const body = dialog.querySelector(".body");
  byId("concept-title").textContent = `Concept ${number}`;
  body.replaceChildren(make("p", { class: "dim" }, "Loading…"));
  openDialog(dialog, byId("concept-title"));
  let concept;
  try {
    concept = await ask(`/concepts/${number}`, []);
  } catch (error) {
    body.replaceChildren(make("p", {}, error.message));
    return;
  }
  if (state.concept !== number) return;
  byId("concept-title").textContent = concept.label;
  body.replaceChildren(...description(concept));
  fillSteering();
  dialog.scrollTop = 0;
}

function description(concept) {
  const facts = [`active in ${count(concept.documents, indexed.unit)}`];
  if (concept.firing_frequency !== null) {
    facts.push(`on ${(100 * concept.firing_frequency).toPrecision(2)} % of tokens`);
  }
  if (concept.source === "llm") facts.push("named by a language model");
  if (concept.source === "explanations") facts.push("named by published explanations");
  if (concept.source === "none") facts.push("without a name: no text that was read has it");
  if (concept.detection !== null) facts.push(`detection ${concept.detection.toFixed(2)}: ${DETECTION}`);
  const blocks = [make("p", { class: "dim" }, facts.join(", ")), make("div", { id: "concept-steering" })];
  const block = (title, items, attributes = {}) => {
    if (items.length) blocks.push(make("h3", {}, title), make("ul", { role: "list", ...attributes }, ...items));
  };
  block(
    "Words on which it is active",
    concept.words.map(({ word, z }) =>
      make("li", {}, word, make("span", { class: "dim number" }, ` ${z.toFixed(1)}`)),
    ),
    { class: "words-list" },
  );
  const most = Math.max(...concept.histogram.map(({ words }) => words), 1);
  block(
    "Words by activation",
    concept.histogram.map(({ activation, words }) =>
      make("li", {}, `from ${activation.toPrecision(2)}`, meter("concepts", words / most), words.toLocaleString("en")),
    ),
    { class: "histogram number" },
  );
  const passages = (examples) =>
    examples.map((one) =>
      make("li", {}, "…", one.before, make("mark", { class: "concepts" }, one.fired), one.after, "…"),
    );
  block("Largest activations", passages(concept.examples));
  block("Other activations, at random", passages(concept.drawn));
  block(
    "Documents",
    concept.top_documents.map((one) =>
      make("li", {}, make("strong", {}, one.title || one.id), make("br"), make("span", { class: "dim" }, one.excerpt)),
    ),
  );
  block(
    "Of the same name",
    concept.alike.map((other) => make("li", {}, opening(other, `#${other}`, `alike-${other}`))),
    { class: "words-list" },
  );
  block(
    "Similar concepts",
    concept.nearest.map((one) =>
      make(
        "li",
        {},
        opening(one.number, one.label, `near-${one.number}`),
        make("span", { class: "dim number" }, ` cosine ${one.cosine.toFixed(2)}`),
      ),
    ),
  );
  return blocks;
}

/** The buttons that steer the shown concept, or add it to the query. */
export function fillSteering() {
  const place = byId("concept-steering");
  if (!place) return;
  const name = `concepts:${state.concept}`;
  const term = termOf(name);
  const focused = document.activeElement?.dataset?.focus;
  if (asking() && term) {
    place.replaceChildren(make("span", { class: "dim" }, "In your query "), steering(term, "dialog"));
  } else {
    const note = state.query.trim() ? "Not in your query. " : "";
    place.replaceChildren(make("span", { class: "dim" }, note), adding(state.concept, "dialog"));
  }
  if (focused) place.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

/** A button that adds a concept to the query. */
export function adding(number, place) {
  const name = `concepts:${number}`;
  const add = () => go({ added: new Map(state.added).set(name, addingWeight()) });
  return action("Add to the query", add, { "data-focus": `${place}-add-${number}` });
}
