(() => {
  const body = $(".front tbody");
  const items = all("tr", body).map((element) => ({
    element, name: $("th", element).textContent, found: element.dataset.finding, text: element.textContent.toLowerCase() }));
  filters({
    items, names: ["q", "finding"], choice: "finding", find: () => undefined, suggested: items.map(({ name }) => name),
    matches: (item, values, chosen, words) => (!chosen.size || chosen.has(item.found)) && words.every((word) => item.text.includes(word)),
    told: (shown) => `${shown} of ${items.length} ${items.length === 1 ? "op" : "ops"}`,
  });
  const cell = ({ dataset, textContent }) => (dataset.rank ? Number(dataset.rank) : textContent);
  const heads = all(".front thead th").map((head, place) => [head, ({ element }) => cell(element.cells[place])]);
  sortable(heads, items, (sorted) => body.append(...sorted.map(({ element }) => element)));
})();
