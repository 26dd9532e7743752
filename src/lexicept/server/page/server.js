// Requests to the server.

import { state } from "./state.js";

export class Refused extends Error {}

export async function ask(path, parameters, signal) {
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

/** The parameters of a search in one list. */
export function asked(vocabulary, steered = true) {
  const parameters = [["query", state.query]];
  if (vocabulary !== null) parameters.push(["vocabulary", vocabulary]);
  for (const [name, weight] of state.added) parameters.push(["add", `${name}:${weight}`]);
  if (state.like !== null) parameters.push(["like", state.like]);
  if (steered) {
    for (const [name, factor] of state.steer) parameters.push(["steer", `${name}:${factor}`]);
  }
  return parameters;
}
