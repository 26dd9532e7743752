"use strict";

// Texts of documents, labels and queries are only ever put in as text: no string becomes markup.

const TOP_K = 10;
const BASELINE = 100; // ranks that a steered result is compared with
const FEW_TERMS = matchMedia("(max-width: 44rem)").matches ? 4 : 12;
const FEW_PARTS = 5;
const EXCERPT = 300; // characters
const STRONGEST = 64;
const MODES = ["both", "words", "concepts", "compare"];

const byId = (id) => document.getElementById(id);
const key = (part) => `${part.vocabulary}:${part.dimension}`;
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const rounded = (factor) => Number(factor.toFixed(6)); // the digits that the server takes
const percent = (share) => (share > 0 && share < 0.005 ? "<1 %" : `${Math.round(100 * share)} %`);

let vocabularies = [];
let state = readAddress();
let running = new AbortController();
let shownTerms = [];
let allTerms = false;
let opener = null; // what the focus goes back to when the concept is closed

/** An element with attributes, listeners (functions) and children; strings become text. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// ---- the address: everything that is shown can be shared and gone back to

function readAddress() {
  const parameters = new URLSearchParams(location.search);
  const mode = parameters.get("in");
  const concept = parameters.get("concept");
  const steer = new Map();
  for (const text of parameters.getAll("steer")) {
    const found = /^((?:words|concepts):\d{1,9}):(\d{1,3}(?:\.\d{1,6})?)$/.exec(text);
    if (found) steer.set(found[1], Number(found[2]));
  }
  return {
    query: parameters.get("q") ?? "",
    mode: MODES.includes(mode) ? mode : "both",
    steer,
    concept: /^\d{1,9}$/.test(concept ?? "") ? Number(concept) : null,
  };
}

function address({ query, mode, steer, concept }) {
  const parameters = new URLSearchParams();
  if (query) parameters.set("q", query);
  if (mode !== "both") parameters.set("in", mode);
  for (const [name, factor] of steer) parameters.append("steer", `${name}:${factor}`);
  if (concept !== null) parameters.set("concept", concept);
  const text = parameters.toString();
  return text ? `/?${text}` : "/";
}

/** Go to a state: a step of the browser's history. */
function go(changes) {
  const before = state;
  state = { ...state, ...changes };
  if (address(state) !== address(before)) history.pushState(null, "", address(state));
  show(before);
}

window.addEventListener("popstate", () => {
  const before = state;
  state = readAddress();
  show(before);
});

function show(before) {
  byId("query").value = state.query;
  for (const radio of byId("search").elements["in"]) radio.checked = radio.value === state.mode;
  if (before === null || address({ ...before, concept: null }) !== address({ ...state, concept: null })) {
    search();
  }
  if (before === null || before.concept !== state.concept) showConcept();
  else if (state.concept !== null) fillSteering();
}

// ---- the server

class Refused extends Error {}

async function ask(path, parameters, signal) {
  let response;
  try {
    response = await fetch(`${path}?${new URLSearchParams(parameters)}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer. Is it running?");
  }
  const content = await response.json().catch((error) => {
    // The request may be given up, or the connection lost, in the middle of an answer.
    if (error.name === "AbortError" || response.ok) throw error;
    return {};
  });
  if (!response.ok) throw new Refused(content.detail ?? `The server failed (${response.status}).`);
  return content;
}

function complain(error, again) {
  if (error.name === "AbortError") return;
  say("");
  const [text, button] = byId("problem").children;
  text.textContent = error instanceof Refused ? error.message : `This page failed: ${error.message}`;
  button.onclick = again;
  byId("problem").hidden = false;
}

function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

/** The parameters of a search in one list. */
function asked(vocabulary, steered = true) {
  const parameters = [["query", state.query]];
  if (vocabulary !== null) parameters.push(["vocabulary", vocabulary]);
  if (steered) {
    for (const [name, factor] of state.steer) parameters.push(["steer", `${name}:${factor}`]);
  }
  return parameters;
}

// ---- searching

async function search() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  byId("problem").hidden = true;
  document.title = state.query ? `${state.query} – lexicept` : "lexicept";
  if (!state.query.trim()) {
    byId("terms").hidden = true;
    byId("results").replaceChildren();
    say("Type a query. Every result shows the words and concepts that matched.");
    return;
  }
  say("Searching…");
  const compare = state.mode === "compare";
  const lists = compare ? ["words", "concepts"] : [state.mode === "both" ? null : state.mode];
  try {
    const [terms, ...found] = await Promise.all([
      ask("/query", asked(lists.length > 1 ? null : lists[0], false), signal),
      ...lists.map((vocabulary) => findList(vocabulary, signal)),
    ]);
    const focused = document.activeElement?.dataset?.focus;
    showTerms(terms.terms);
    if (state.concept !== null) fillSteering();
    showLists(found, compare);
    if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    say(outcome(found, compare));
    await explainAll(found, signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      byId("terms").hidden = true;
      byId("results").replaceChildren();
    }
    complain(error, search);
  }
}

async function findList(vocabulary, signal) {
  const [now, before] = await Promise.all([
    ask("/search", [...asked(vocabulary), ["top_k", TOP_K]], signal),
    state.steer.size
      ? ask("/search", [...asked(vocabulary, false), ["top_k", BASELINE]], signal)
      : null,
  ]);
  const ranks = before && new Map(before.results.map((result) => [result.id, result.rank]));
  return { vocabulary, results: now.results, ranks, note: now.note };
}

function outcome(found, compare) {
  const named = found.map(({ vocabulary, results }) =>
    compare ? `${count(results.length, "result")} by ${vocabulary}` : count(results.length, "result"),
  );
  const notes = found.flatMap(({ note }) => (note ? ` ${note[0].toUpperCase()}${note.slice(1)}.` : []));
  if (found.every(({ results }) => !results.length)) {
    return state.steer.size
      ? "No results: no document shares what is left of the query. Undo some steering."
      : `No results: no document shares a word or a concept with this query.${notes.join("")}`;
  }
  const moved = found.flatMap(({ results, ranks }) =>
    ranks ? results.filter(({ id, rank }) => ranks.get(id) !== rank) : [],
  );
  const steered = state.steer.size ? `; steering moved ${moved.length || "none"} of them` : "";
  return `${named.join(", ")}${steered}.${notes.join("")}`;
}

// ---- the query and its steering

function showTerms(found) {
  const terms = found.map((term) => ({ ...term, term: named(term) }));
  shownTerms = terms;
  const most = Math.max(...terms.map((term) => term.weight), 0);
  const groups = Object.values(Object.groupBy(terms, (term) => term.vocabulary));
  const strongest = new Set(groups.flatMap((group) => group.slice(0, FEW_TERMS / groups.length)));
  // What is steered stays in sight.
  const few = terms.filter((term) => strongest.has(term) || state.steer.has(key(term)));
  const listed = allTerms ? terms : few;
  byId("terms").querySelector("ul").replaceChildren(
    ...listed.map((term) => {
      const factor = state.steer.get(key(term)) ?? 1;
      const name = make("div", { class: "name" }, kind(term.vocabulary), label(term, "term"));
      name.append(meter(term.vocabulary, most ? (term.weight * factor) / most : 0));
      const item = make("li", {}, name, steering(term, "term"));
      item.classList.toggle("removed", factor === 0);
      return item;
    }),
  );
  byId("terms").hidden = !terms.length;
  byId("reset").hidden = !state.steer.size;
  const more = byId("more-terms");
  more.hidden = few.length === terms.length;
  more.textContent = allTerms ? "Show only the largest" : `Show all ${terms.length}`;
  more.setAttribute("aria-expanded", allTerms);
}

/** Buttons that lower, raise and remove a term of the query. */
function steering(term, place) {
  const factor = state.steer.get(key(term)) ?? 1;
  const change = (to, possible) => () => {
    if (!possible) return;
    const steer = new Map(state.steer);
    if (to === 1) steer.delete(key(term));
    else steer.set(key(term), to);
    go({ steer });
  };
  // What is not possible keeps the focus: a key pressed once too often leaves it where it is.
  const button = (name, sign, to, possible = true) =>
    make(
      "button",
      {
        type: "button",
        click: change(to, possible),
        title: name,
        "aria-disabled": possible ? null : "true",
        "aria-label": `${name}: ${term.vocabulary.slice(0, -1)} ${term.term}`,
        "data-focus": `${place}-${key(term)}-${name === "Restore" ? "Remove" : name}`,
      },
      sign,
    );
  const group = make("div", { class: "steer", role: "group", "aria-label": `Steer ${term.term}` });
  group.classList.toggle("steered", factor !== 1);
  group.append(
    make("span", { class: "factor number" }, factor === 1 ? "" : factor ? `× ${factor}` : "removed"),
    button("Lower", "−", rounded(factor / 2), factor > 1 / 16),
    button("Raise", "+", rounded(factor * 2), factor > 0 && factor < 64),
    factor === 0 ? button("Restore", "↺", 1) : button("Remove", "×", 0),
  );
  return group;
}

// ---- results

function showLists(found, compare) {
  const results = byId("results");
  results.classList.toggle("compare", compare);
  results.replaceChildren(
    ...found.map((list) => {
      const title = compare ? `By ${list.vocabulary}` : "Results";
      list.cards = list.results.map((result) => card(result, list.ranks));
      return make(
        "section",
        { class: "list", "aria-label": title },
        make("h2", { class: compare ? "" : "sr" }, title),
        list.results.length
          ? make("ol", { role: "list" }, ...list.cards)
          : make("p", { class: "dim" }, "No results."),
      );
    }),
  );
}

function card(result, ranks) {
  const facts = make(
    "p",
    { class: "facts number" },
    make("span", {}, `#${result.rank}`),
    make("span", {}, `score ${result.score.toFixed(3)}`),
    make("span", {}, result.id),
  );
  const move = ranks && moved(result, ranks);
  if (move) facts.append(move);
  return make(
    "li",
    { class: "result" },
    make("h3", {}, result.title || result.id),
    facts,
    make("p", { class: "excerpt" }, result.excerpt),
    make("div", { class: "why" }),
  );
}

/** Where a result was before steering. */
function moved(result, ranks) {
  const before = ranks.get(result.id);
  if (before === result.rank) return null;
  const [sign, text] =
    before === undefined
      ? ["▲", `from below ${BASELINE}`]
      : [before > result.rank ? "▲" : "▼", `from ${before}`];
  return make(
    "span",
    { class: "moved" },
    make("span", { "aria-hidden": "true" }, `${sign} `),
    make("span", { class: "sr" }, sign === "▲" ? "up " : "down "),
    text,
  );
}

/** One after the other, the best first: each may run a model. */
async function explainAll(found, signal) {
  for (let place = 0; place < TOP_K; place += 1) {
    for (const { vocabulary, results, cards } of found) {
      if (place >= results.length) continue;
      const parameters = [...asked(vocabulary), ["document_id", results[place].id]];
      try {
        explain(cards[place], await ask("/explain", parameters, signal));
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        // Such as a document that was deleted meanwhile: the other results stand.
        const reason = make("p", { class: "dim" }, `Not explained: ${error.message}`);
        cards[place].querySelector(".why").replaceChildren(reason);
      }
    }
  }
}

function explain(item, why) {
  const text = Array.from(why.content); // by code points, as spans count
  const { title } = why;
  // The title is the heading already.
  const start = title && why.content.startsWith(`${title} `) ? Array.from(title).length + 1 : 0;
  const marks = item.querySelector(".excerpt");
  const contributions = why.contributions.map((part) => ({ ...part, term: named(part, text) }));
  marks.replaceChildren(...excerpt(text, start, contributions));

  const shares = ["words", "concepts"].map((name) => [
    name,
    contributions.reduce((sum, part) => sum + (part.vocabulary === name ? part.score : 0), 0),
  ]);
  shares.push(["prior", why.prior]);
  const shown = shares.filter(([, score]) => score > 0);
  const stack = make("div", { class: "stack", "aria-hidden": "true" });
  const keys = make("p", { class: "keys number" });
  for (const [name, score] of shown) {
    const piece = make("div", { class: name });
    piece.style.flexGrow = score;
    stack.append(piece);
    keys.append(
      make(
        "span",
        {},
        make("span", { class: `key ${name}`, "aria-hidden": "true" }),
        `${name === "prior" ? "document prior" : name} ${percent(score / why.score)}`,
      ),
    );
  }

  const parts = make("ul", { class: "parts", role: "list" });
  const most = contributions[0]?.score ?? 0;
  const list = (all) => {
    const some = all ? contributions : contributions.slice(0, FEW_PARTS);
    parts.replaceChildren(...some.map((part) => contribution(part, why.score, most, marks)));
  };
  list(false);
  const box = item.querySelector(".why");
  box.replaceChildren(stack, keys, parts);
  const hidden = contributions.length - FEW_PARTS;
  if (hidden > 0) {
    const more = make("button", { type: "button", class: "plain", "aria-expanded": "false" });
    const closed = `Show ${hidden} more`;
    more.textContent = closed;
    more.addEventListener("click", () => {
      const open = more.getAttribute("aria-expanded") === "false";
      more.setAttribute("aria-expanded", open);
      more.textContent = open ? "Show only the largest" : closed;
      list(open);
    });
    box.append(more);
  }
}

/** A contribution; while it is pointed at, what fired it is outlined in the text. */
function contribution(part, score, most, marks) {
  const outline = (on) => () => {
    for (const mark of marks.querySelectorAll("mark")) {
      const fired = mark.dataset.terms.split(" ").includes(key(part));
      mark.classList.toggle("active", on && fired);
    }
  };
  return make(
    "li",
    { mouseenter: outline(true), mouseleave: outline(false), focusin: outline(true), focusout: outline(false) },
    make("div", {}, kind(part.vocabulary), label(part, "part")),
    meter(part.vocabulary, most ? part.score / most : 0),
    make("span", { class: "share number" }, percent(score ? part.score / score : 0)),
  );
}

/** The piece of a text with the largest contributions, with marks on what fired them. */
function excerpt(text, start, contributions) {
  const spans = contributions
    .slice(0, STRONGEST)
    .flatMap((part) =>
      part.document_spans.map((span) => ({
        start: Math.max(span.start, start),
        end: span.end,
        part,
        weight: part.score * span.share,
        strong: span.share >= part.document_spans[0].share / 2,
      })),
    )
    .filter((span) => span.start < span.end)
    .sort((a, b) => a.start - b.start);
  let from = start;
  let best = 0;
  let sum = 0;
  let last = 0;
  spans.forEach((span, first) => {
    while (last < spans.length && spans[last].end <= span.start + EXCERPT - 40) sum += spans[last++].weight;
    if (sum > best * 1.0001) [best, from] = [sum, Math.max(start, span.start - 40)];
    if (last > first) sum -= span.weight;
    else last = first + 1;
  });
  if (from - start < 60) from = start;
  const earliest = Math.max(start, from - 20); // not every script has spaces
  while (from > earliest && /\S/.test(text[from - 1])) from -= 1;
  let to = Math.min(text.length, from + EXCERPT);
  while (to < text.length && to < from + EXCERPT + 20 && /\S/.test(text[to])) to += 1;

  const inside = spans.filter((span) => span.start < to && span.end > from);
  const cuts = [from, to, ...inside.flatMap((span) => [Math.max(span.start, from), Math.min(span.end, to)])];
  const places = [...new Set(cuts)].sort((a, b) => a - b);
  const pieces = [from > start ? "… " : ""];
  for (let i = 0; i + 1 < places.length; i += 1) {
    const piece = text.slice(places[i], places[i + 1]).join("");
    const here = inside.filter((span) => span.start <= places[i] && span.end >= places[i + 1]);
    const parts = here.map((span) => span.part);
    if (!parts.length) {
      pieces.push(piece);
      continue;
    }
    const kinds = new Set(parts.map((part) => part.vocabulary));
    pieces.push(
      make(
        "mark",
        {
          class: `${kinds.size > 1 ? "both" : [...kinds][0]}${here.some((span) => span.strong) ? "" : " weak"}`,
          title: parts.map((part) => `${part.vocabulary.slice(0, -1)} ${part.term}`).join("\n"),
          "data-terms": parts.map(key).join(" "),
        },
        piece,
      ),
    );
  }
  pieces.push(to < text.length ? " …" : "");
  return pieces;
}

/** What a term is called: a word as the query spells it, for the index only has its stem; a concept
 * without a name after the words that fire it, in the query and perhaps in a document's text. */
function named(term, text = []) {
  const asked = spelled(Array.from(state.query), term.query_spans ?? term.spans);
  if (term.vocabulary === "words") return asked || term.term;
  if (term.term !== `#${term.dimension}` || !asked) return term.term;
  const matched = spelled(text, term.document_spans ?? []);
  return matched ? `${asked} ↔ ${matched}` : `${asked} ${term.term}`;
}

/** The characters with the largest share; nothing where no span is known. */
function spelled(text, spans) {
  return spans.length ? text.slice(spans[0].start, spans[0].end).join("") : "";
}

function kind(vocabulary) {
  return make("span", { class: "kind" }, vocabulary.slice(0, -1));
}

/** A term's name; a concept's opens it. */
function label(term, place) {
  if (term.vocabulary !== "concepts") {
    return make("span", { class: `term ${term.vocabulary}` }, term.term);
  }
  return opening(term.dimension, term.term, `${place}-open-${term.dimension}`);
}

function opening(number, text, focus) {
  return make(
    "button",
    {
      type: "button",
      class: "term concepts",
      "aria-haspopup": "dialog",
      "data-focus": focus,
      click: () => go({ concept: number }),
    },
    text,
  );
}

function meter(name, share) {
  const bar = make("div", { class: name });
  bar.style.width = `${100 * Math.min(share, 1)}%`;
  return make("div", { class: "meter", "aria-hidden": "true" }, bar);
}

// ---- a concept

async function showConcept() {
  const dialog = byId("concept");
  if (state.concept === null) {
    if (dialog.open) dialog.close();
    return;
  }
  const number = state.concept;
  const body = dialog.querySelector(".body");
  if (!dialog.open) {
    opener = document.activeElement?.dataset?.focus ?? null;
    dialog.showModal();
  }
  byId("concept-title").textContent = `Concept ${number}`;
  body.replaceChildren(make("p", { class: "dim" }, "Loading…"));
  byId("concept-title").focus();
  let concept;
  try {
    concept = await ask(`/concepts/${number}`, []);
  } catch (error) {
    body.replaceChildren(make("p", {}, error.message));
    return;
  }
  if (state.concept !== number) return;
  byId("concept-title").textContent = concept.label;
  const facts = [`active in ${count(concept.documents, "document")}`];
  if (concept.firing_frequency !== null) {
    facts.push(`on ${(100 * concept.firing_frequency).toPrecision(2)} % of tokens`);
  }
  if (concept.source === "llm") facts.push("named by a language model");
  if (concept.source === "explanations") facts.push("named by published explanations");
  if (concept.source === "none") facts.push("without a name: its words have no common meaning");
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
  block(
    "Largest activations",
    concept.examples.map((one) =>
      make("li", {}, "…", one.before, make("mark", { class: "concepts" }, one.fired), one.after, "…"),
    ),
  );
  block(
    "Documents",
    concept.top_documents.map((one) =>
      make("li", {}, make("strong", {}, one.title || one.id), make("br"), make("span", { class: "dim" }, one.excerpt)),
    ),
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
  body.replaceChildren(...blocks);
  fillSteering();
  dialog.scrollTop = 0;
}

/** The buttons that steer the shown concept, where the query has it. */
function fillSteering() {
  const place = byId("concept-steering");
  if (!place) return;
  const term = shownTerms.find((one) => one.vocabulary === "concepts" && one.dimension === state.concept);
  if (!state.query.trim() || !term) {
    place.replaceChildren(make("p", { class: "dim" }, state.query.trim() ? "Not in your query." : ""));
    return;
  }
  const focused = document.activeElement?.dataset?.focus;
  place.replaceChildren(make("span", { class: "dim" }, "In your query "), steering(term, "dialog"));
  if (focused) place.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

byId("concept").addEventListener("close", () => {
  if (state.concept !== null) go({ concept: null });
  if (opener) document.querySelector(`[data-focus="${CSS.escape(opener)}"]`)?.focus();
});
byId("concept").querySelector(".close").addEventListener("click", () => byId("concept").close());
byId("concept").addEventListener("click", (event) => {
  if (event.target === byId("concept")) byId("concept").close(); // beside it
});

// ---- forms

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = byId("query").value.trim();
  // Another query is made of other concepts.
  if (query !== state.query) go({ query, steer: new Map() });
  else search();
});
for (const radio of byId("search").elements["in"]) {
  radio.addEventListener("change", () => go({ mode: radio.value }));
}
byId("reset").addEventListener("click", () => {
  byId("terms").querySelector("ul button")?.focus(); // this button goes away
  go({ steer: new Map() });
});
byId("more-terms").addEventListener("click", () => {
  allTerms = !allTerms;
  showTerms(shownTerms);
});
byId("finder").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [status, list] = [byId("finder").querySelector("[role=status]"), byId("finder").querySelector("ul")];
  try {
    const found = await ask("/concepts", [["search", byId("label").value], ["top_k", 50]]);
    status.textContent = found.total
      ? count(found.total, "concept") + (found.total > found.concepts.length ? ", the most frequent:" : ":")
      : "No concept has this text in its name or words.";
    list.replaceChildren(
      ...found.concepts.map((one) =>
        make(
          "li",
          {},
          opening(one.number, one.label, `found-${one.number}`),
          ` ${count(one.documents, "document")}`,
        ),
      ),
    );
  } catch (error) {
    status.textContent = error.message;
    list.replaceChildren();
  }
});

async function start() {
  try {
    const health = await ask("/health", []);
    vocabularies = health.vocabularies.map(({ name }) => name);
    const sizes = health.vocabularies.map(({ name, size }) => count(size, name.slice(0, -1)));
    byId("collection").textContent = [count(health.documents, "document"), ...sizes].join(" · ");
  } catch (error) {
    complain(error, start);
    return;
  }
  const both = vocabularies.includes("words") && vocabularies.includes("concepts");
  byId("modes").hidden = !both;
  byId("finder").hidden = !vocabularies.includes("concepts");
  if (!both) state.mode = "both";
  show(null);
}

start();
