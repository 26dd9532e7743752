// The search: its requests, its results, and the forms.

import { action, byId, count, indexed, make } from "./common.js";
import { adding, closing, fillSteering, opening, showConcept } from "./concept.js";
import { fieldsOf, place, showDocument } from "./document.js";
import { chosenFields, faceting, filtering, loadFields, showFilters } from "./fields.js";
import { explain } from "./marks.js";
import { Refused, ask, asked } from "./server.js";
import { asking, go, onChange, sameSearch, state } from "./state.js";
import { hideTerms, showTerms, spelledOut } from "./terms.js";

const TOP_K = 10;
const MOST = 1000; // results that the server ranks
const BASELINE = 100; // ranks that a steered result is compared with
const LOOK = 2000; // milliseconds between looks for what a build adds
const FEEDBACK = 3; // first results that feedback takes for relevant

let vocabularies = [];
let running = new AbortController();
let fed = new Set(state.relevant.length ? state.added.keys() : []); // what feedback has added

onChange(show);

function show(before) {
  // Somebody may have begun to type before the page was ready.
  if (before !== null || state.query) byId("query").value = state.query;
  for (const radio of byId("search").elements["in"]) radio.checked = radio.value === state.mode;
  if (before === null || !sameSearch(before, state)) {
    search();
    if (before !== null && before.page !== state.page) scrollTo(0, 0);
  } else {
    showMarked();
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

async function search() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  byId("problem").hidden = true;
  byId("meant").hidden = true;
  const about = state.query || (state.like === null ? "" : `like ${state.like}`);
  document.title = about ? `${about} – lexicept` : "lexicept";
  if (!asking()) {
    hideTerms();
    clear();
    byId("status").classList.remove("weak");
    say("Type a query. Every result shows the words and concepts that matched.");
    return;
  }
  say("Searching…");
  busy(true);
  const compare = state.mode === "compare";
  const lists = compare ? ["words", "concepts"] : [state.mode === "both" ? null : state.mode];
  try {
    const [terms, ...found] = await Promise.all([
      ask("/query", asked(lists.length > 1 ? null : lists[0], false), signal),
      ...lists.map((vocabulary) => findList(vocabulary, signal)),
    ]);
    const focused = document.activeElement?.dataset?.focus;
    showTerms(terms.terms, terms.text);
    byId("stop-words").hidden = !terms.stop_words.length;
    byId("stop-words").textContent = `Not searched as words: ${terms.stop_words.join(", ")}`;
    if (state.concept !== null) fillSteering();
    showLists(found, compare);
    showFilters(found[0].facets);
    showMeant(found[0].meant);
    busy(false);
    if (focused) document.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
    say(outcome(found, compare));
    await explainAll(found, signal);
  } catch (error) {
    if (error.name !== "AbortError") {
      hideTerms();
      clear();
    }
    complain(error, search);
  }
}

/** Whether the results that are shown are those of an earlier search. */
function busy(yes) {
  byId("results").setAttribute("aria-busy", yes);
}

function clear() {
  byId("results").replaceChildren();
  busy(false);
  byId("pages").hidden = true;
  byId("feedback").hidden = true;
}

async function findList(vocabulary, signal) {
  const wanted = [["top_k", TOP_K], ["offset", TOP_K * (state.page - 1)], ["count", "true"], ...faceting()];
  const [now, before] = await Promise.all([
    ask("/search", [...asked(vocabulary), ...filtering(), ...wanted], signal),
    state.steer.size
      ? ask("/search", [...asked(vocabulary, false), ...filtering(), ["top_k", BASELINE]], signal)
      : null,
  ]);
  const ranks = before && new Map(before.results.map((result) => [result.id, result.rank]));
  const { results, weak, note, total, facets } = now;
  return { vocabulary, results, ranks, weak, note, total, facets, meant: now.did_you_mean };
}

/** How many results there are, and which of them are shown. */
function counted({ results, total }) {
  if (total <= results.length) return count(total, "result");
  const first = results.length ? results[0].rank : 0;
  return `${first} to ${first + results.length - 1} of ${count(total, "result")}`;
}

function outcome(found, compare) {
  const named = found.map((list) => (compare ? `${counted(list)} by ${list.vocabulary}` : counted(list)));
  const notes = found.flatMap(({ note }) => (note ? ` ${note[0].toUpperCase()}${note.slice(1)}.` : []));
  if (found.every(({ total }) => !total)) {
    const filtered = filtering().length ? " and passes the filters" : "";
    if (state.steer.size) return `No results: no document shares what is left of the query${filtered}. Undo some steering.`;
    if (notes.length) return `No results.${notes.join("")}`;
    return `No results: no document shares a word or a concept with this query${filtered}.`;
  }
  const moved = found.flatMap(({ results, ranks }) =>
    ranks ? results.filter(({ id, rank }) => ranks.get(id) !== rank) : [],
  );
  const steered = state.steer.size ? `; steering moved ${moved.length || "none"} of them` : "";
  const counts = `${named.join(", ")}${steered}.`;
  return found.some(({ weak }) => weak) ? `${notes.join("").trim()} ${counts}` : `${counts}${notes.join("")}`;
}

function showMeant(meant) {
  byId("meant").hidden = !meant;
  const [button] = byId("meant").children;
  button.textContent = meant;
  button.onclick = () => go({ query: meant, steer: new Map(), added: new Map(), relevant: [] });
}

// ---- results

function showLists(found, compare) {
  const results = byId("results");
  results.classList.toggle("compare", compare);
  for (const one of [results, byId("status")]) one.classList.toggle("weak", found.some(({ weak }) => weak));
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
  showPages(Math.max(...found.map(({ total }) => total)));
  byId("feedback").hidden = compare || !found[0].results.length || !state.query.trim();
  showMarked();
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

function card(result, ranks) {
  const facts = make(
    "p",
    { class: "facts number" },
    make("span", {}, `#${result.rank}`),
    make("span", {}, `score ${result.score.toFixed(3)}`),
    place(result),
    ...fieldsOf(chosenFields(result)),
  );
  const move = ranks && moved(result, ranks);
  if (move) facts.append(move);
  const open = action(result.title || result.id, () => go({ document: result.id }), {
    class: "open",
    "aria-haspopup": "dialog",
    "data-focus": `document-${result.id}`,
  });
  const mark = action("More like this", () => toggle(result.id), {
    class: "plain mark",
    "aria-pressed": "false",
    "data-id": result.id,
    "data-focus": `mark-${result.id}`,
    title: "Relevant: add its largest words and concepts to the query",
  });
  return make(
    "li",
    { class: "result" },
    make("h3", {}, open),
    facts,
    make("p", { class: "excerpt" }, result.excerpt),
    make("div", { class: "why" }),
    mark,
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
      const parameters = [...asked(vocabulary), ["document_id", results[place].passage ?? results[place].id]];
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

// ---- relevance feedback

/** Show which results are marked as relevant. */
function showMarked() {
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
  const documents = relevant === null ? [["top_k", FEEDBACK], ...filtering()] : relevant.map((id) => ["document_id", id]);
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

// ---- forms

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = byId("query").value.trim();
  // Another query is made of other concepts.
  if (query !== state.query) go({ query, like: null, steer: new Map(), added: new Map(), relevant: [] });
  else search();
});
for (const radio of byId("search").elements["in"]) {
  radio.addEventListener("change", () => go({ mode: radio.value }));
}
byId("feedback").querySelector("button").addEventListener("click", () => feed(null));
closing(byId("concept"), { concept: null });
closing(byId("document"), { document: null });
byId("finder").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  findConcepts();
});

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

byId("own").addEventListener("submit", (event) => {
  event.preventDefault();
  readOwn();
});

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

async function start() {
  try {
    await learn();
  } catch (error) {
    complain(error, start);
    return;
  }
  show(null);
}

/** Show what the index has. */
async function learn() {
  const health = await ask("/health", []);
  vocabularies = health.vocabularies.map(({ name }) => name);
  indexed.unit = health.unit.slice(0, -1);
  indexed.prefix = health.url_prefix;
  const sizes = health.vocabularies.map(({ name, size }) => count(size, name.slice(0, -1)));
  if (health.missing.length) sizes.push(`${health.missing.join(" and ")} follow`);
  byId("collection").textContent = [count(health.documents, "document"), ...sizes].join(" · ");
  await loadFields();
  const both = vocabularies.includes("words") && vocabularies.includes("concepts");
  byId("modes").hidden = !both;
  byId("about").hidden = !vocabularies.includes("concepts");
  byId("finder").hidden = !vocabularies.includes("concepts");
  if (!both) state.mode = "both";
  if (vocabularies.includes("concepts")) findConcepts(); // to browse, without a search
  if (health.missing.length) setTimeout(follow, LOOK);
}

/** Show what a build has added since, and search it. */
async function follow() {
  try {
    const { missing } = await ask("/health", []);
    if (missing.length) setTimeout(follow, LOOK);
    else await learn().then(() => show(null));
  } catch {
    setTimeout(follow, LOOK); // the server may be back later
  }
}

start();
