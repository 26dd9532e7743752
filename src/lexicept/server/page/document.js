// A document in a dialog, with everything in it that fired.

import { action, byId, indexed, make } from "./common.js";
import { openDialog } from "./concept.js";
import { explain, legend } from "./marks.js";
import { ask, asked } from "./server.js";
import { asking, go, state } from "./state.js";

export async function showDocument() {
  const dialog = byId("document");
  if (state.document === null) {
    if (dialog.open) dialog.close();
    return;
  }
  const id = state.document;
  const body = dialog.querySelector(".body");
  byId("document-title").textContent = id;
  body.replaceChildren(make("p", { class: "dim" }, "Loading…"));
  openDialog(dialog, byId("document-title"));
  try {
    const one = await ask("/document", [["document_id", id]]);
    if (state.document !== id) return;
    byId("document-title").textContent = one.title || id;
    body.replaceChildren(...described(one));
    dialog.scrollTop = 0;
    if (!asking() || state.like === id) return;
    const vocabulary = ["words", "concepts"].includes(state.mode) ? state.mode : null;
    const why = await ask("/explain", [...asked(vocabulary), ["document_id", id]]);
    if (state.document !== id) return;
    const whole = why.passage === null;
    if (!whole) body.prepend(bestPassage(why));
    const place = whole ? body : body.querySelector(".best");
    explain(place, why, whole ? byId("document-title") : place.querySelector("h3"));
  } catch (error) {
    if (state.document === id) body.append(make("p", {}, error.message));
  }
}

function described(one) {
  const like = action("Documents like this", () =>
    go({ query: "", like: one.id, document: null, steer: new Map(), added: new Map(), relevant: [] }),
  );
  return [
    make("p", { class: "facts" }, place(one), ...fieldsOf(one)),
    like,
    ...(one.passages.length ? [] : [legend(), make("div", { class: "why" })]),
    make("p", { class: "excerpt" }, one.text),
  ];
}

/** The address of a document by the server's template; the suffix of a file goes with index and
 * README, which sites show at their folder. */
export function filled(template, id, passage) {
  const path = encodeURI(id).replaceAll("#", "%23").replaceAll("?", "%3F");
  const bare = path.replace(/\.[^./]*$/, "").replace(/(^|\/)(index|readme)$/i, "$1");
  const anchor = passage?.startsWith(`${id}#`) ? encodeURI(passage.slice(id.length)) : "";
  return template.replace("{path}", () => path).replace("{path_without_suffix}", () => bare) + anchor;
}

/** A document's id, as a link if the document has an address: its field url, or the server's. */
export function place({ id, passage, fields }) {
  const own = typeof fields?.url === "string" && /^https?:\/\//.test(fields.url) ? fields.url : "";
  const template = indexed.documentUrl;
  const address = own || (template ? filled(template, id, passage) : "");
  return address ? make("a", { href: address }, id) : make("span", {}, id);
}

/** The passage that makes the score of a document that is indexed in passages. */
function bestPassage(why) {
  return make(
    "div",
    { class: "best" },
    make("p", { class: "dim" }, "The best passage"),
    make("h3", {}, why.title || why.passage),
    legend(),
    make("div", { class: "why" }),
    make("p", { class: "excerpt" }),
    make("h3", {}, "The whole document"),
  );
}

/** A document's fields, each as a piece of text. */
export function fieldsOf({ fields }) {
  return Object.entries(fields ?? {}).map(([name, value]) =>
    make("span", {}, `${name}: ${Array.isArray(value) ? value.join(", ") : value}`),
  );
}
