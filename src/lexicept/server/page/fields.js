// Filters: a condition that is written, and values of fields that are chosen.

import { action, byId, make } from "./common.js";
import { ask } from "./server.js";
import { another, go, state } from "./state.js";

const MOST_FIELDS = 8;
const MOST_VALUES = 6;
const MOST_DISTINCT = 20; // values of a field that can be chosen from
const LONGEST = 40; // characters of a value to browse
let kinds = new Map();
let offered = [];

/** Load the fields of the documents; those without any have no filters. */
export async function loadFields() {
  const { fields } = await ask("/fields", []);
  kinds = new Map(fields.map((field) => [field.name, field.kind]));
  offered = fields.filter((field) => field.offered);
  byId("filters").hidden = !kinds.size;
  byId("filters").querySelector("p.known").textContent = offered
    .map(({ name, kind, many }) => `${name} (${many ? `list of ${kind}s` : kind})`)
    .join(", ");
}

/** The frequent values of the fields, to browse without a query. */
export function browsing() {
  const short = ({ value }) => String(value).length <= LONGEST;
  const repeated = offered.filter(({ values }) => values.length > 1 && values[0].documents > 1 && values.every(short));
  return repeated.slice(0, MOST_FIELDS).map(({ name, values }) => group(name, values, (value) => go(another(condition(name, value)))));
}

/** A condition as a query has it. */
function condition(field, value) {
  const name = /^[^\W\d][\w.-]*$/.test(field) ? field : quoted(field);
  return `${name}:${/^[\w.-]+$/.test(value) ? value : /"/.test(value) ? `“${value}”` : `"${value}"`}`;
}

/** A document's fields that the filters name. */
export function chosenFields({ fields }) {
  const chosen = ([name]) => state.values.some(([field]) => field === name) || state.filter.includes(name);
  return { fields: Object.fromEntries(Object.entries(fields ?? {}).filter(chosen)) };
}

/** The parameters of the filters and of the facets to count. */
export function filtering() {
  const parts = state.values.map(([field, value]) => `${quoted(field)} = ${literal(field, value)}`);
  if (state.filter.trim()) parts.push(`(${state.filter})`);
  return parts.length ? [["filter", parts.join(" and ")]] : [];
}

export function faceting() {
  const counted = offered.filter(({ kind }) => kind !== "date").slice(0, MOST_FIELDS);
  return counted.map(({ name }) => ["facet", name]);
}

const escaped = (text, quote) => quote + text.replace(/[\\`']/g, "\\$&") + quote;
const quoted = (field) => escaped(field, "`");
const literal = (field, value) => (kinds.get(field) === "keyword" ? escaped(value, "'") : value);

/** Show the chosen values, and those that can be chosen with the number of their results. */
export function showFilters(facets) {
  byId("filter").value = state.filter;
  const chosen = state.values.map(([field, value], place) =>
    make(
      "li",
      { class: "chip" },
      `${field}: ${value} `,
      action("×", () => go({ values: state.values.filter((_, other) => other !== place) }), {
        "aria-label": `Any ${field} again`,
        "data-focus": `chosen-${place}`,
      }),
    ),
  );
  byId("chosen").replaceChildren(...chosen);
  const groups = Object.entries(facets).map(([field, found]) => {
    const free = found.filter(({ value }) => !state.values.some(([f, v]) => f === field && v === String(value)));
    return found.length < 2 || found.length > MOST_DISTINCT || !free.length
      ? ""
      : group(field, free, (value) => go({ values: [...state.values, [field, String(value)]] }));
  });
  byId("facets").replaceChildren(...groups);
  const number = state.values.length + Boolean(state.filter.trim());
  byId("filters-count").textContent = number ? ` ${number} in use` : "";
}

/** A field with its most frequent values, each of which can be chosen. */
function group(field, values, choose) {
  const buttons = values.slice(0, MOST_VALUES).map(({ value, documents }) => {
    const button = action(String(value), () => choose(value), { class: "facet" });
    button.append(make("span", { class: "dim number" }, ` ${documents.toLocaleString("en")}`));
    return button;
  });
  return make("div", { class: "group", role: "group", "aria-label": field }, make("span", { class: "kind" }, field), ...buttons);
}

byId("filters").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  go({ filter: byId("filter").value.trim() });
});
