// What is shown, in the address: everything can be shared and gone back to.

const MODES = ["both", "words", "concepts", "compare"];
const TERM = /^((?:words|concepts):\d{1,9}):(\d{1,3}(?:\.\d{1,6})?)$/;

export let state = readAddress();
let shown = () => {};

/** Call a function after every change, with the state before. */
export function onChange(show) {
  shown = show;
}

function numbers(parameters, name) {
  const found = new Map();
  for (const text of parameters.getAll(name)) {
    const match = TERM.exec(text);
    if (match) found.set(match[1], Number(match[2]));
  }
  return found;
}

function readAddress() {
  const parameters = new URLSearchParams(location.search);
  const mode = parameters.get("in");
  const concept = parameters.get("concept") ?? "";
  const page = parameters.get("page") ?? "";
  const values = parameters.getAll("is").map((text) => [text.slice(0, text.lastIndexOf("=")), text.slice(text.lastIndexOf("=") + 1)]);
  return {
    query: parameters.get("query") ?? parameters.get("q") ?? "", // q in older addresses
    mode: MODES.includes(mode) ? mode : "both",
    page: /^\d{1,3}$/.test(page) ? Math.max(Number(page), 1) : 1,
    filter: parameters.get("filter") ?? "",
    values: values.map(([field, value]) => [decoded(field), decoded(value)]),
    steer: numbers(parameters, "steer"),
    added: numbers(parameters, "add"),
    relevant: parameters.getAll("relevant"),
    like: parameters.get("like"),
    concept: /^\d{1,9}$/.test(concept) ? Number(concept) : null,
    document: parameters.get("document"),
    explainAll: parameters.get("explain") === "all",
    explained: parameters.getAll("explained"), // ids of results
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function address(one) {
  const parameters = new URLSearchParams();
  if (one.query) parameters.set("query", one.query);
  if (one.mode !== "both") parameters.set("in", one.mode);
  if (one.page > 1) parameters.set("page", one.page);
  if (one.filter) parameters.set("filter", one.filter);
  for (const pair of one.values) parameters.append("is", pair.map(encodeURIComponent).join("="));
  for (const [name, factor] of one.steer) parameters.append("steer", `${name}:${factor}`);
  for (const [name, weight] of one.added) parameters.append("add", `${name}:${weight}`);
  for (const id of one.relevant) parameters.append("relevant", id);
  if (one.like !== null) parameters.set("like", one.like);
  if (one.explainAll) parameters.set("explain", "all");
  for (const id of one.explained) parameters.append("explained", id);
  if (one.concept !== null) parameters.set("concept", one.concept);
  if (one.document !== null) parameters.set("document", one.document);
  const text = parameters.toString();
  return text ? `/?${text}` : "/";
}

const unsearched = { concept: null, document: null, relevant: [], explainAll: false, explained: [] };
const searched = (one) => address({ ...one, ...unsearched });

/** True if two states are searches for the same. */
export function sameSearch(one, other) {
  return searched(one) === searched(other);
}

/** What another query takes away: it is made of other concepts. */
export function another(query) {
  return { query, like: null, steer: new Map(), added: new Map(), relevant: [] };
}

/** Go to a state: a step of the browser's history, or without a step in place of the last one.
 * Another search begins at its first page, with closed explanations. */
export function go(changes, step = true) {
  const before = state;
  state = { ...state, ...changes };
  if (!sameSearch(before, state)) {
    if (!("page" in changes)) state.page = 1;
    state.explained = [];
  }
  if (address(state) !== address(before)) {
    if (step) history.pushState(null, "", address(state));
    else history.replaceState(null, "", address(state));
  }
  shown(before);
}

window.addEventListener("popstate", () => {
  const before = state;
  state = readAddress();
  shown(before);
});

/** True if there is something to search for. */
export function asking() {
  return Boolean(state.query.trim() || state.added.size || state.like !== null);
}
