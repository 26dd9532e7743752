// What there is to search: the collection, queries to begin with, and the concepts.

import { action, byId, count, indexed, make } from "./common.js";
import { adding, opening } from "./concept.js";
import { browsing, loadFields } from "./fields.js";
import { ask } from "./server.js";
import { another, asking, go } from "./state.js";

const EXAMPLES = 3;

/** The names of the index's vocabularies, and of those that a build adds yet. */
export async function learn() {
  const health = await ask("/health", []);
  const vocabularies = health.vocabularies.map(({ name }) => name);
  indexed.unit = health.unit.slice(0, -1);
  indexed.documentUrl = health.document_url;
  const read = health.changed ? `, read on ${dated(health.changed)}` : "";
  const follow = health.missing.length ? ` ${health.missing.join(" and ")} follow.` : "";
  byId("collection").textContent = `${count(health.documents, "document")}${read}.${follow}`;
  const concepts = health.vocabularies.find(({ name }) => name === "concepts");
  byId("finder").hidden = !concepts;
  if (concepts) byId("finder").querySelector("summary").textContent = `Browse the ${count(concepts.size, "concept")}`;
  await loadFields();
  await showExamples();
  return { vocabularies, missing: health.missing };
}

function dated(text) {
  return new Date(text).toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
}

/** Offer titles as queries, and values of fields where there are fewer. */
async function showExamples() {
  const { queries } = await ask("/examples", []);
  const groups = browsing();
  byId("browse").replaceChildren(...groups);
  const examples = queries.slice(0, EXAMPLES).map((query) => action(query, () => go(another(query)), { class: "facet" }));
  byId("examples").replaceChildren(byId("examples").firstElementChild, ...examples);
  byId("examples").hidden = !examples.length;
}

/** Show what is there to begin with, where nothing is searched for. */
export function showStart() {
  byId("start").hidden = asking();
}

/** A concept's frequency, the detection score of its name, and its words, in one line. */
function aboutConcept({ documents, detection, words }) {
  const tested = detection === null ? [] : [`detection ${detection.toFixed(2)}`];
  return [count(documents, indexed.unit), ...tested, words.join(", ")].join(" · ");
}

/** List the concepts that have a text in their name or words; all without a text. */
async function findConcepts() {
  const [status, list] = [byId("finder").querySelector("[role=status]"), byId("finder").querySelector("ul")];
  try {
    const search = byId("label").value;
    const found = await ask("/concepts", [["search", search], ["top_k", 40]]);
    if (search !== byId("label").value) return; // a later one is under way
    status.textContent = found.total
      ? count(found.total, "concept") + (found.total > found.concepts.length ? ", the first:" : ":")
      : "No concept has this text in its name or words.";
    list.replaceChildren(
      ...found.concepts.map((one) =>
        make(
          "li",
          {},
          opening(one.number, one.name, `found-${one.number}`),
          " ",
          adding(one.number, "found"),
          make("span", { class: "fired" }, aboutConcept(one)),
        ),
      ),
    );
  } catch (error) {
    status.textContent = error.message;
    list.replaceChildren();
  }
}

/** Show the concepts that are active on each word of a text of the reader's own. */
async function readOwn() {
  const [status, shown] = [byId("own").querySelector("[role=status]"), byId("own").querySelector(".heat")];
  const own = byId("own-text").value.trim();
  shown.replaceChildren();
  status.textContent = "";
  if (!own) return;
  try {
    const { text, tokens } = await ask("/activations", [["text", own]]);
    const letters = Array.from(text); // by code points, as spans count
    const most = Math.max(...tokens.map(({ activations: [first] }) => first?.activation ?? 0));
    let end = 0;
    for (const token of tokens) {
      shown.append(letters.slice(end, token.start).join(""));
      const word = letters.slice(token.start, token.end).join("");
      const [first] = token.activations;
      const heat = first && opening(first.number, word, `own-${token.start}`, "token");
      if (heat) {
        heat.title = token.activations.map((one) => `${one.label} ${one.activation.toFixed(2)}`).join("\n");
        heat.style.setProperty("--heat", `${Math.round((80 * first.activation) / most)}%`);
      }
      shown.append(heat ?? word);
      end = token.end;
    }
    status.textContent = "Darker words are more active; each opens its largest concept.";
  } catch (error) {
    status.textContent = error.message;
  }
}

byId("finder").addEventListener("toggle", () => {
  if (byId("finder").open && !byId("finder").querySelector(".found").hasChildNodes()) findConcepts();
});
byId("finder").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  findConcepts();
});
byId("own").addEventListener("submit", (event) => {
  event.preventDefault();
  readOwn();
});
