// Makes each column of a table sortable by its heading. Without it the table is complete, in order of names.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const compare = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" }).compare;
  const valueOf = (row, column) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
  const sortBy = (head, column) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => compare(valueOf(a, column), valueOf(b, column)));
    body.append(...(down ? rows.reverse() : rows));
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sortBy(head, column));
    head.append(button);
  });
  table.closest("section").classList.add("can-sort");
}
