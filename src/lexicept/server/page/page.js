// The search: its requests, what is said about them, and the form.

import { byId, count } from "./common.js";
import { closing, fillSteering, showConcept } from "./concept.js";
import { showDocument } from "./document.js";
import { onProblem, showMarked } from "./feedback.js";
import { faceting, filtering, showFilters } from "./fields.js";
import "./keys.js";
import { showLists, showOpen } from "./results.js";
import { Refused, ask, asked } from "./server.js";
import { learn, showStart } from "./start.js";
import { another, asking, go, onChange, sameSearch, state } from "./state.js";
import { hideTerms, showTerms } from "./terms.js";

const TOP_K = 10;
const MOST = 1000; // results that the server ranks
const BASELINE = 100; // ranks that a steered result is compared with
const LOOK = 2000; // milliseconds between looks for what a build adds
const PAUSE = 250; // milliseconds without a key after which all vocabularies are searched

let vocabularies = [];
let running = new AbortController();
let shownLists = [];
let pause = 0;
let typing = false; // the change of the state comes from a key
let typed = false; // the last step of the history is a query that is being typed

onChange(show);
onProblem(complain);

function show(before) {
  const fromKey = typing;
  typing = false;
  if (!fromKey) typed = false;
  // Somebody may have begun to type before the page was ready.
  if (!fromKey && (before !== null || state.query)) byId("query").value = state.query;
  for (const radio of byId("search").elements["in"]) radio.checked = radio.value === state.mode;
  if (before === null || !sameSearch(before, state)) {
    if (fromKey) searchTyped();
    else search();
    if (before !== null && before.page !== state.page) scrollTo(0, 0);
  } else {
    showMarked();
    showOpen(shownLists, running.signal).catch((error) => complain(error, search));
  }
  if (before === null || before.concept !== state.concept) showConcept();
  else if (state.concept !== null) fillSteering();
  if (before === null || before.document !== state.document) showDocument();
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

// ---- searching

/** Give up what is under way: only the last search is shown. */
function begin() {
  clearTimeout(pause);
  running.abort();
  running = new AbortController();
  byId("problem").hidden = true;
  byId("meant").hidden = true;
  const about = state.query || (state.like === null ? "" : `like ${state.like}`);
  document.title = about ? `${about} – lexicept` : "lexicept";
  showStart();
  return running.signal;
}

/** Search words at once, and everything when the typing pauses. */
async function searchTyped() {
  const signal = begin();
  if (!asking()) {
    search();
    return;
  }
  pause = setTimeout(search, PAUSE);
  busy(true);
  if (!vocabularies.includes("words") || !["both", "words"].includes(state.mode)) return;
  try {
    const list = await findList("words", signal, false);
    shownLists = [list];
    if (list.results.length) render(() => showLists(shownLists, false, { terms: [], text: "" }));
  } catch (error) {
    // What is typed so far may be no query yet: the search after the pause says so.
    if (!(error instanceof Refused) && error.name !== "AbortError") throw error;
  }
}

async function search() {
  const signal = begin();
  if (!asking()) {
    hideTerms();
    clear();
    showFilters({});
    say("");
    return;
  }
  say("Searching…");
  busy(true);
  const compare = state.mode === "compare";
  const lists = compare ? ["words", "concepts"] : [state.mode === "both" ? null : state.mode];
  try {
    const [terms, ...found] = await Promise.all([
      ask("/query", asked(lists.length > 1 ? null : lists[0], false), signal),
      ...lists.map((vocabulary) => findList(vocabulary, signal, true)),
    ]);
    shownLists = found;
    render(() => {
      showTerms(terms.terms, terms.text);
      byId("stop-words").hidden = !terms.stop_words.length;
      byId("stop-words").textContent = `Not searched as words: ${terms.stop_words.join(", ")}`;
      if (state.concept !== null) fillSteering();
      showLists(found, compare, terms);
      showFilters(found[0].facets);
    });
    for (const one of [byId("results"), byId("status")]) one.classList.toggle("weak", found.some(({ weak }) => weak));
    showPages(Math.max(...found.map(({ total }) => total)));
    byId("feedback").hidden = compare || found[0].results.length < 3 || !state.query.trim();
    showMeant(found[0].meant);
    busy(false);
    say(outcome(found, compare, terms.text));
    await showOpen(found, signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      hideTerms();
      clear();
    }
    complain(error, search);
  }
}

/** Show something new, and keep the focus where it was. */
function render(change) {
  const focused = document.activeElement?.dataset?.focus;
  change();
  if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

/** Whether the results that are shown are those of an earlier search. */
function busy(yes) {
  byId("results").setAttribute("aria-busy", yes);
}

function clear() {
  shownLists = [];
  byId("results").replaceChildren();
  for (const one of [byId("results"), byId("status")]) one.classList.remove("weak");
  busy(false);
  for (const name of ["pages", "feedback", "why-all", "colours"]) byId(name).hidden = true;
}

async function findList(vocabulary, signal, whole) {
  const counting = whole ? [["count", "true"], ...faceting()] : [];
  const wanted = [["top_k", TOP_K], ["offset", TOP_K * (state.page - 1)], ["matches", "true"], ...counting];
  const [now, before] = await Promise.all([
    ask("/search", [...asked(vocabulary), ...filtering(), ...wanted], signal),
    state.steer.size
      ? ask("/search", [...asked(vocabulary, false), ...filtering(), ["top_k", BASELINE]], signal)
      : null,
  ]);
  const ranks = before && { ranks: new Map(before.results.map((result) => [result.id, result.rank])), most: BASELINE };
  const { results, weak, note, total, facets } = now;
  return { vocabulary, results, ranks, weak, note, total, facets, meant: now.did_you_mean };
}

// ---- what is said about a search

/** How many documents there are, and which of them are shown. */
function counted({ results, total }) {
  const all = count(total, "document");
  if (total <= results.length || !results.length || results[0].rank === 1) return all;
  return `${results[0].rank} to ${results[0].rank + results.length - 1} of ${all}`;
}

function outcome(found, compare, text) {
  const notes = found.flatMap(({ note }) => (note ? [`${note[0].toUpperCase()}${note.slice(1)}.`] : []));
  if (found.every(({ total }) => !total)) return nothing(notes, text);
  const named = found.map((list) => (compare ? `${counted(list)} by ${list.vocabulary}` : counted(list))).join(", ");
  const [first] = notes;
  if (found.some(({ weak }) => weak)) return `${first ?? "Nothing matches well."} The nearest of ${named}:`;
  const moved = found.flatMap(({ results, ranks }) =>
    ranks ? results.filter(({ id, rank }) => ranks.ranks.get(id) !== rank) : [],
  );
  const steered = state.steer.size ? `; steering moved ${moved.length || "none"} of them` : "";
  return [`${named}${steered}.`, ...notes].join(" ");
}

/** Why nothing is found, for a query whose words are a text. */
function nothing([note], text) {
  if (state.steer.size) return "No document has what steering left of the query.";
  if (!text.trim() && state.like === null && !state.added.size) return "No document meets the conditions.";
  const shared = { both: "a word or a concept", compare: "a word or a concept", words: "a word", concepts: "a concept" };
  return note ?? `No document has ${shared[state.mode]} of this query.`;
}

function showMeant(meant) {
  byId("meant").hidden = !meant;
  const [button] = byId("meant").children;
  button.textContent = meant;
  button.onclick = () => go(another(meant));
}

function showPages(total) {
  const last = Math.ceil(Math.min(total, MOST) / TOP_K);
  byId("pages").hidden = last < 2;
  const [back, text, on] = byId("pages").children;
  text.textContent = `Page ${state.page} of ${last.toLocaleString("en")}`;
  for (const [button, page] of [[back, state.page - 1], [on, state.page + 1]]) {
    button.disabled = page < 1 || page > last;
    button.onclick = () => go({ page });
  }
}

// ---- the form

function type() {
  const query = byId("query").value.trim();
  if (query === state.query) return;
  typing = true;
  const step = !typed;
  typed = true;
  go(another(query), step);
}

byId("query").addEventListener("input", (event) => {
  if (!event.isComposing) type();
});
byId("query").addEventListener("compositionend", type);
byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = byId("query").value.trim();
  typed = false;
  if (query !== state.query) go(another(query));
  else search();
});
for (const radio of byId("search").elements["in"]) {
  radio.addEventListener("change", () => go({ mode: radio.value }));
}
closing(byId("concept"), { concept: null });
closing(byId("document"), { document: null });

// ---- the beginning

async function start() {
  try {
    await know();
  } catch (error) {
    complain(error, start);
    return;
  }
  show(null);
}

/** Learn what the index has, and look again where a build adds to it. */
async function know() {
  const learned = await learn();
  vocabularies = learned.vocabularies;
  const both = vocabularies.includes("words") && vocabularies.includes("concepts");
  byId("modes").hidden = !both;
  if (!both) state.mode = "both";
  if (learned.missing.length) setTimeout(follow, LOOK);
}

/** Show what a build has added since, and search it. */
async function follow() {
  try {
    const { missing } = await ask("/health", []);
    if (missing.length) setTimeout(follow, LOOK);
    else await know().then(() => show(null));
  } catch {
    setTimeout(follow, LOOK); // the server may be back later
  }
}

start();
