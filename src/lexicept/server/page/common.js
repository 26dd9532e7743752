// What every part of the page uses: elements, numbers and texts. Texts of documents, labels and
// queries are only ever put in as text: no string becomes markup.

/** What the index counts, documents or passages of documents, and what precedes an id in an address. */
export const indexed = { unit: "document", documentUrl: null };

export const byId = (id) => document.getElementById(id);
export const key = (part) => `${part.vocabulary}:${part.dimension}`;
export const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
export const rounded = (factor) => Number(factor.toFixed(6)); // the digits that the server takes
export const percent = (share) => (share > 0 && share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`);

/** An element with attributes, listeners (functions) and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** A button that does something, named by its text. */
export function action(text, click, attributes = {}) {
  return make("button", { type: "button", click, ...attributes }, text);
}

/** The characters with the largest share; nothing where no span is known. */
export function spelled(text, spans) {
  return spans.length ? text.slice(spans[0].start, spans[0].end).join("") : "";
}

/** What a term is called: a word as the query spells it, for the index only has its stem; a concept
 * without a name after the words that fire it, in the query and perhaps in a document's text. */
export function named(term, asked, text = []) {
  const own = spelled(Array.from(asked), term.query_spans ?? term.spans);
  if (term.vocabulary === "words") return own || term.term;
  if (term.term !== `#${term.dimension}` || !own) return term.term;
  const matched = spelled(text, term.document_spans ?? []);
  return matched ? `${own} ↔ ${matched}` : `${own} ${term.term}`;
}

/** A concept's name without the number that tells it from others of that name. */
export function bare(name, dimension) {
  return name.endsWith(` #${dimension}`) ? name.slice(0, name.lastIndexOf(" #")) : name;
}

export function kind(vocabulary) {
  return make("span", { class: "kind" }, vocabulary.slice(0, -1));
}

export function meter(name, share) {
  const bar = make("div", { class: name });
  bar.style.width = `${100 * Math.min(share, 1)}%`;
  return make("div", { class: "meter", "aria-hidden": "true" }, bar);
}
