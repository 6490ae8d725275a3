(() => {
  const items = all("tr.claim").map((element) => ({ element, ...element.dataset, text: element.textContent.toLowerCase() }));
  const matches = (item, { list, device }, chosen, words) =>
    (!chosen.size || chosen.has(item.state)) && (!list || item.list === list) && (!device || item.device === device) &&
    words.every((word) => item.text.includes(word));
  filters({
    items, matches, names: ["q", "state", "list", "device"], choice: "state", find: () => undefined,
    told: (shown) => `${shown} of ${items.length} ${items.length === 1 ? "line" : "lines"}`,
  });
  for (const body of all(".claims tbody")) {
    const rows = all("tr", body).map((element) => ({ element }));
    const said = ({ textContent }) => (/^\d+$/.test(textContent) ? Number(textContent) : textContent);
    const heads = all("thead th", body.parentElement).map((head, place) => [head, ({ element }) => said(element.cells[place])]);
    sortable(heads, rows, (sorted) => body.append(...sorted.map(({ element }) => element)));
  }
})();
