// Tables that can be sorted and searched; the page reads the same without this.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const value = (row, column) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
  table.querySelectorAll("thead th").forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    button.addEventListener("click", () => {
      const numeric = header.classList.contains("number");
      const before = header.getAttribute("aria-sort");
      const down = before ? before === "ascending" : numeric;
      for (const other of table.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const compare = numeric
        ? (a, b) => value(a, column) - value(b, column)
        : (a, b) => value(a, column).localeCompare(value(b, column));
      body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * compare(a, b)));
    });
  });
  if (table.closest(".long")) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.type = "search";
    label.className = "filter";
    label.append("Show rows with ", input);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
    table.parentElement.before(label);
  }
}
