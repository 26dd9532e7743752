// Keys: / and Ctrl-K search, arrows move between results and open explanations, Escape closes.

import { byId } from "./common.js";
import { toggle } from "./results.js";

const typing = (element) => element.matches("input:not([type=radio]), textarea, select");

/** Put the focus on the query, and select it. */
function ask() {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  byId("query").focus();
  byId("query").select();
}

/** Put the focus on the title of the next result or of the one before; before the first is the
 * query. */
function move(by) {
  const titles = [...document.querySelectorAll(".result .open")];
  const current = titles.indexOf(document.activeElement?.closest(".result")?.querySelector(".open"));
  const next = titles[Math.min(current + by, titles.length - 1)];
  if (current + by < 0) byId("query").focus();
  else next?.focus();
  next?.closest(".result").scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  const { key, target } = event;
  if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") {
    event.preventDefault();
    ask();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const result = target.closest?.(".result");
  if (key === "/" && !typing(target)) {
    event.preventDefault();
    ask();
  } else if (key === "ArrowDown" && (result || target === byId("query") || target === document.body)) {
    event.preventDefault();
    move(1);
  } else if (key === "ArrowUp" && result) {
    event.preventDefault();
    move(-1);
  } else if (result && ["ArrowRight", "ArrowLeft", "Escape"].includes(key)) {
    const open = result.classList.contains("explained");
    if (open !== (key === "ArrowRight")) toggle(result.dataset.id);
    else if (key === "Escape") byId("query").focus();
  }
});
