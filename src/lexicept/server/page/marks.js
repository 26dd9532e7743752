// Explanations: what fired, in the text and in a list.

import { action, bare, key, make, meter, named, percent, spelled } from "./common.js";
import { opening } from "./concept.js";

const FEW_PARTS = 5;
const EXCERPT = 300; // characters
const STRONGEST = 64;
const PAIRS = 3; // of words behind a similarity
const WHOLE_PARTS = { similarity: "similar as a whole", prior: "document prior" }; // of a score

/** Fill a result with its explanation. Where it is open its whole text is shown, and its heading
 * has marks too. */
export function explain(item, why, heading = null) {
  const text = Array.from(why.content); // by code points, as spans count
  const { title } = why;
  // The title is the heading already.
  const start = title && why.content.startsWith(`${title} `) ? Array.from(title).length + 1 : 0;
  const marks = item.querySelector(".excerpt");
  const contributions = why.contributions.map((part) => ({
    ...part,
    term: named(part, why.text, text),
    label: part.term,
    asked: spelled(Array.from(why.text), part.query_spans),
    matched: spelled(text, part.document_spans),
  }));
  const piece = heading ? [start, text.length] : excerpt(text, start, contributions);
  if (heading && start) heading.replaceChildren(...marked(text.slice(0, start - 1), 0, 0, start - 1, contributions));
  marks.replaceChildren(...marked(text, start, ...piece, contributions));
  item.querySelector(".why").replaceChildren(...shares(why, contributions), ...list(why, byIdea(contributions), marks));
}

/** Contributions of one idea together, largest first: a word, and the concepts named by it. */
function byIdea(contributions) {
  return Object.values(Object.groupBy(contributions, (part) => part.idea || key(part)))
    .map((parts) => {
      const word = parts.find(({ vocabulary }) => vocabulary === "words");
      const concept = parts.find(({ vocabulary }) => vocabulary === "concepts");
      const score = parts.reduce((sum, part) => sum + part.score, 0);
      const label = word ? word.asked || word.label : bare(parts[0].term, parts[0].dimension);
      return { ...parts[0], parts, concept, score, keys: parts.map(key), label };
    })
    .sort((a, b) => b.score - a.score);
}

/** What an idea is made of: "word", "meaning", or both with their shares. */
function composition(parts, score) {
  const nouns = { words: "word", concepts: "meaning" };
  const groups = Object.entries(Object.groupBy(parts, ({ vocabulary }) => nouns[vocabulary] ?? vocabulary));
  if (groups.length === 1) return groups[0][0];
  return groups
    .map(([noun, some]) => `${noun} ${percent(some.reduce((sum, part) => sum + part.score, 0) / score)}`)
    .join(", ");
}

/** The parts of a score by words, concepts, similarity and prior, which are also the colours' legend. */
function shares(why, contributions) {
  const sums = ["words", "concepts"].map((name) => [
    name,
    contributions.reduce((sum, part) => sum + (part.vocabulary === name ? part.score : 0), 0),
  ]);
  for (const name of Object.keys(WHOLE_PARTS)) sums.push([name, why[name]]);
  const stack = make("div", { class: "stack", "aria-hidden": "true" });
  const keys = make("p", { class: "keys number" });
  for (const [name, score] of sums.filter(([, one]) => one > 0)) {
    const piece = make("div", { class: name });
    piece.style.flexGrow = score;
    stack.append(piece);
    keys.append(
      make(
        "span",
        {},
        make("span", { class: `key ${name}`, "aria-hidden": "true" }),
        `${WHOLE_PARTS[name] ?? name} ${percent(score / why.score)}`,
      ),
    );
  }
  return [stack, keys];
}

function list(why, contributions, marks) {
  const parts = make("ul", { class: "parts", role: "list" });
  const whole = [
    { whole: "similarity", score: why.similarity, pairs: pairsOf(why.similar_words) },
    { whole: "prior", score: why.prior },
  ];
  const most = Math.max(...[...contributions, ...whole].map(({ score }) => score));
  const fill = (all) => {
    const some = all ? contributions : contributions.slice(0, FEW_PARTS);
    const shown = [...some, ...whole.filter(({ score }) => score > 0)].sort((a, b) => b.score - a.score);
    parts.replaceChildren(
      ...shown.map((part) => (part.whole ? wholePart : contribution)(part, why.score, most, marks)),
    );
  };
  fill(false);
  const hidden = contributions.length - FEW_PARTS;
  if (hidden <= 0) return [parts];
  const closed = `Show ${hidden} more`;
  const more = action(
    closed,
    () => {
      const open = more.getAttribute("aria-expanded") === "false";
      more.setAttribute("aria-expanded", open);
      more.textContent = open ? "Show only the largest" : closed;
      fill(open);
    },
    { class: "plain", "aria-expanded": "false" },
  );
  return [parts, more];
}

/** An idea: its name, what it is made of, and what fired it in the document. While it is pointed at,
 * that is outlined in the text. */
function contribution(part, score, most, marks) {
  const outline = (on) => () => {
    for (const mark of marks.querySelectorAll("mark")) {
      const fired = mark.dataset.terms.split(" ").some((name) => part.keys.includes(name));
      mark.classList.toggle("active", on && fired);
    }
  };
  const name = make("div", {});
  const style = `term ${part.vocabulary}`;
  if (part.concept) {
    const { dimension } = part.concept;
    name.append(opening(dimension, part.label, `part-open-${dimension}`, style));
  } else name.append(make("span", { class: style }, part.label));
  name.append(" ", make("span", { class: "kind" }, composition(part.parts, score)));
  const { matched } = part.parts.find((one) => one.matched) ?? part;
  if (matched && matched.toLowerCase() !== part.label.toLowerCase()) name.append(` → ${matched}`);
  return make(
    "li",
    { mouseenter: outline(true), mouseleave: outline(false), focusin: outline(true), focusout: outline(false) },
    name,
    meter(part.vocabulary, most ? part.score / most : 0),
    make("span", { class: "share number" }, percent(score ? part.score / score : 0)),
  );
}

/** A part of a score that no dimension adds, with the words behind a similarity. */
function wholePart({ whole, score: own, pairs }, score, most) {
  const name = make("div", {}, make("span", { class: `term ${whole}` }, WHOLE_PARTS[whole]));
  if (pairs) name.append(" ", make("span", { class: "kind" }, pairs));
  return make("li", {}, name, meter(whole, own / most), make("span", { class: "share number" }, percent(own / score)));
}

/** The first pairs of different words, as in "sleeping ↔ sleep, laptop ↔ power". */
function pairsOf(similar) {
  const met = new Map();
  for (const { query, document } of similar) {
    if (!met.has(query) && ![...met.values()].includes(document)) met.set(query, document);
  }
  return [...met].slice(0, PAIRS).map((pair) => pair.join(" ↔ ")).join(", ");
}

function spansOf(contributions, start) {
  return contributions
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
}

/** Where the piece of a text with the largest contributions begins and ends. */
function excerpt(text, start, contributions) {
  const spans = spansOf(contributions.slice(0, STRONGEST), start);
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
  return [from, to];
}

/** A piece of a text with marks on what fired. */
function marked(text, start, from, to, contributions) {
  const inside = spansOf(contributions, start).filter((span) => span.start < to && span.end > from);
  const edges = new Map(); // place → the spans that begin or end there
  for (const span of inside) {
    for (const [place, name] of [[Math.max(span.start, from), "opens"], [Math.min(span.end, to), "closes"]]) {
      if (!edges.has(place)) edges.set(place, { opens: [], closes: [] });
      edges.get(place)[name].push(span);
    }
  }
  const places = [...new Set([from, to, ...edges.keys()])].sort((a, b) => a - b);
  const pieces = [from > start ? "… " : ""];
  const here = new Set();
  for (let i = 0; i + 1 < places.length; i += 1) {
    const { opens = [], closes = [] } = edges.get(places[i]) ?? {};
    closes.forEach((span) => here.delete(span));
    opens.forEach((span) => here.add(span));
    const piece = text.slice(places[i], places[i + 1]).join("");
    pieces.push(here.size ? mark(piece, [...here]) : piece);
  }
  pieces.push(to < text.length ? " …" : "");
  return pieces;
}

function mark(piece, spans) {
  const parts = spans.map((span) => span.part);
  const kinds = new Set(parts.map((part) => part.vocabulary));
  return make(
    "mark",
    {
      class: `${kinds.size > 1 ? "both" : [...kinds][0]}${spans.some((span) => span.strong) ? "" : " weak"}`,
      title: parts.map((part) => `${part.vocabulary.slice(0, -1)} ${part.term}`).join("\n"),
      "data-terms": parts.map(key).join(" "),
    },
    piece,
  );
}

/** What the colours of a text mean. */
export function legend() {
  const entry = (name, text) => make("span", {}, make("mark", { class: name }, text));
  return make(
    "p",
    { class: "legend" },
    entry("words", "a word"),
    entry("concepts", "fired a concept"),
    entry("concepts weak", "fired it less"),
    entry("both", "both"),
  );
}
