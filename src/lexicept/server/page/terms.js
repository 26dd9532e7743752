// The query: its words and concepts, what was added to it, and their steering.

import { action, byId, key, kind, make, meter, named, rounded } from "./common.js";
import { opening } from "./concept.js";
import { go, state } from "./state.js";

const FEW_TERMS = 12;
const FEW_ADDED = 8;

let shownTerms = [];
let searchedText = "";
let allTerms = false;
let allAdded = false;
export const spelledOut = new Map(); // how added words are spelled, by key

/** The term of the query with a key; undefined where it has none. */
export function termOf(name) {
  return shownTerms.find((one) => key(one) === name);
}

/** The weight that a concept is added with: that of the query's largest. */
export function addingWeight() {
  const weights = shownTerms.filter((one) => one.vocabulary === "concepts").map((one) => one.weight);
  return rounded(Math.min(Math.max(...weights, 0) || 1, 999));
}

export function showTerms(found, text) {
  searchedText = text;
  shownTerms = found.map((term) => ({ ...term, label: term.term, term: nameOf(term, text) }));
  const own = shownTerms.filter((term) => !state.added.has(key(term)) || term.spans.length);
  const most = Math.max(...shownTerms.map((term) => term.weight), 0);
  const groups = Object.values(Object.groupBy(own, (term) => term.vocabulary));
  const strongest = new Set(groups.flatMap((group) => group.slice(0, FEW_TERMS / groups.length)));
  // What is steered stays in sight.
  const few = own.filter((term) => strongest.has(term) || state.steer.has(key(term)));
  const listed = allTerms ? own : few;
  byId("terms").querySelector("ul").replaceChildren(...listed.map((term) => item(term, most)));
  showAdded();
  byId("terms").hidden = !shownTerms.length;
  byId("reset").hidden = !state.steer.size;
  byId("terms-count").textContent = state.steer.size ? ` ${state.steer.size} steered` : ` ${own.length}`;
  const more = byId("more-terms");
  more.hidden = few.length === own.length;
  more.textContent = allTerms ? "Show only the largest" : `Show all ${own.length}`;
  more.setAttribute("aria-expanded", allTerms);
}

export function hideTerms() {
  shownTerms = [];
  byId("terms").hidden = true;
}

function nameOf(term, text) {
  return spelledOut.get(key(term)) && !term.spans.length ? spelledOut.get(key(term)) : named(term, text);
}

function item(term, most) {
  const factor = state.steer.get(key(term)) ?? 1;
  const name = make("div", { class: "name" }, kind(term.vocabulary), label(term));
  name.append(meter(term.vocabulary, most ? (term.weight * factor) / most : 0));
  const one = make("li", {}, name, steering(term, "term"));
  one.classList.toggle("removed", factor === 0);
  return one;
}

/** A term's name, which opens a concept. */
function label({ vocabulary, dimension, term }, place = "term") {
  if (vocabulary === "concepts") return opening(dimension, term, `${place}-open-${dimension}`);
  return make("span", { class: `term ${vocabulary}` }, term);
}

/** What was added, each with a button that takes it away. */
function showAdded() {
  const box = byId("added");
  const added = [...state.added.keys()].map((name) => [name, termOf(name)]);
  box.hidden = !added.length;
  const listed = allAdded ? added : added.slice(0, FEW_ADDED);
  const more = byId("more-added");
  more.hidden = added.length <= FEW_ADDED;
  more.textContent = allAdded ? "Show only the largest" : `Show all ${added.length}`;
  more.setAttribute("aria-expanded", allAdded);
  const chips = listed.map(([name, term]) => {
    const text = term?.term ?? name;
    const remove = () => {
      const rest = new Map(state.added);
      rest.delete(name);
      go({ added: rest });
    };
    return make(
      "li",
      { class: "chip" },
      ...(term ? [kind(term.vocabulary), label(term, "added")] : [text]),
      action("×", remove, { "aria-label": `Take away: ${text}`, "data-focus": `added-${name}` }),
    );
  });
  box.querySelector("ul").replaceChildren(...chips);
}

/** Buttons that lower, raise and remove a term of the query. */
export function steering(term, place) {
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
    action(sign, change(to, possible), {
      title: name,
      "aria-disabled": possible ? null : "true",
      "aria-label": `${name}: ${term.vocabulary.slice(0, -1)} ${term.term}`,
      "data-focus": `${place}-${key(term)}-${name === "Restore" ? "Remove" : name}`,
    });
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

byId("reset").addEventListener("click", () => {
  byId("terms").querySelector("ul button")?.focus(); // this button goes away
  go({ steer: new Map() });
});
byId("more-terms").addEventListener("click", () => {
  allTerms = !allTerms;
  showTerms(shownTerms.map((term) => ({ ...term, term: term.label })), searchedText);
});
byId("more-added").addEventListener("click", () => {
  allAdded = !allAdded;
  showAdded();
});
byId("drop-added").addEventListener("click", () => go({ added: new Map(), relevant: [] }));
