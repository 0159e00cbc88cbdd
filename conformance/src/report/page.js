// Tables sort by a click on a heading; `data-v` is a cell's value where its text is not. The search field filters the tests.
const value = (row, column) => {
  const cell = row.cells[column];
  const text = cell.dataset.v ?? cell.textContent;
  return text !== "" && !isNaN(text) ? Number(text) : text;
};
for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("thead th").forEach((heading, column) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const falling = heading.ariaSort ? heading.ariaSort === "ascending" : heading.classList.contains("n");
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      heading.ariaSort = falling ? "descending" : "ascending";
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1);
      });
      table.tBodies[0].append(...rows);
    });
  });
}
const search = document.getElementById("search");
search?.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/);
  for (const row of document.querySelectorAll("#tests tbody tr")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});
