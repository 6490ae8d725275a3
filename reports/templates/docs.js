(() => {
  const items = all("tr.claim").map((element) => ({ element, ...element.dataset, text: element.textContent.toLowerCase() }));
  const matches = (item, { list, device }, chosen, words) =>
    (!chosen.size || chosen.has(item.state)) && (!list || item.list === list) && (!device || item.device === device) &&
    words.every((word) => item.text.includes(word));
  filters({
    items, matches, names: ["q", "state", "list", "device"], choice: "state", find: () => undefined,
    told: (shown) => `${shown} of ${items.length} ${items.length === 1 ? "line" : "lines"}`,
  });
})();
