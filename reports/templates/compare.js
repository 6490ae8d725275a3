// Filters and sorts the timeline, and draws what a row shows in each run.
(() => {
  const labels = data("labels");

  // What a row shows in a run, and what became of it since the run before; of what is not there null.
  const known = (table, place) => (place === null ? null : record(table, place));
  const rows = all("tr.row").map((element, place) => {
    const row = { ...record("rows", place), place, element };
    row.moments = row.moments.map((moment) => {
      const { shown, became, ...cost } = record("moments", moment);
      return { ...cost, shown: known("shown", shown), became: known("became", became) };
    });
    row.button = $(".open", row.element);
    row.id = [row.spec, row.case, row.direction, row.dtype].join(":");
    row.text = [row.id, row.family, row.op, row.device]
      .concat(row.moments.flatMap(({ shown, became }) => [...Object.values(shown || {}), ...Object.values(became || {})]))
      .filter((told) => typeof told === "string")
      .join(" ")
      .toLowerCase();
    return row;
  });

  // What the choices mean of one step; of all of them a row that is the same must be so in each.
  const IS = {
    "": ({ became }) => became.seems !== null || !["same", "not_comparable", "added", "removed"].includes(became.kind),
    all: () => true,
    other_bits: ({ became }) => became.bits !== "",
    documented: ({ became }) => became.redocumented,
  };
  const found = (steps, choice) => {
    const is = IS[choice] || (({ became }) => became.kind === choice);
    return choice === "same" ? steps.every(is) : steps.some(is);
  };
  // A run in which the row is all that is asked of one.
  const shows = ({ shown, ratio }, { finding, verdict, power, slower }) =>
    shown !== null &&
    (!finding || shown.finding === finding) &&
    (!verdict || judged(shown.verdicts, verdict)) &&
    powered(shown, power) &&
    (!slower || COSTS[slower](ratio));
  const matches = (row, values, chosen, words) => {
    const { step, family, direction, device } = values;
    const [table, place] = step ? step.split(":").map(Number) : [0, 0];
    if (table && row.table !== table - 1) return false;
    const steps = (place ? [row.moments[place]] : row.moments).filter(({ became }) => became !== null);
    return (
      (chosen.has("all") || (chosen.size ? [...chosen] : [""]).some((choice) => steps.length && found(steps, choice))) &&
      row.moments.some((moment) => shows(moment, values)) &&
      (!family || row.family === family) &&
      (!direction || row.direction === direction) &&
      (!device || row.table === Number(device) - 1) &&
      words.every((word) => row.text.includes(word))
    );
  };

  // The page itself is sorted by what changed most.
  const ORDERS = {
    "": (one, other) => one.place - other.place,
    name: (one, other) => (one.id < other.id ? -1 : one.id > other.id ? 1 : 0),
    family: (one, other) => (one.family < other.family ? -1 : one.family > other.family ? 1 : ORDERS[""](one, other)),
  };
  let sorted = "";
  const applied = ({ sort }) => {
    for (const row of rows) if (row.panel) row.panel.hidden = row.element.hidden || !isOpen(row);
    for (const table of all(".device")) table.hidden = !$("tr.row:not([hidden])", table);
    if (sort === sorted) return;
    sorted = sort;
    const bodies = all(".device .grid > tbody");
    const parts = bodies.map(() => document.createDocumentFragment());
    for (const row of [...rows].sort(ORDERS[sort])) parts[row.table].append(row.element, ...(row.panel ? [row.panel] : []));
    for (const [place, body] of bodies.entries()) body.append(parts[place]);
  };

  const restsOn = (became) =>
    [became.reason ? `${became.reason}: ${became.detail}` : became.detail, became.bits ? `other bits: ${became.bits}` : ""]
      .filter(Boolean).join("; ");
  const panel = (row) => {
    const lines = row.moments.map(({ shown, cost, became }, place) => [
      labels[row.table][place],
      ...(became ? [became.words, word(restsOn(became))] : [place ? "not planned" : "the first run", "none"]),
      ...(shown ? [shown.note ? `${shown.finding} (${shown.note})` : shown.finding, shown.off, shown.on, shown.documented, cost] : Array(5).fill("not planned")),
    ]);
    const reasons = row.moments.flatMap(({ shown }, place) =>
      shown ? [shown.reason, shown.weak].filter(Boolean).map((told) => `${labels[row.table][place]}: ${told}`) : []);
    const columns = ["Run", "Class", "Evidence", "Finding", "Flag off", "Flag on", "Documented", "Cost"];
    const shown = table("What each run shows", columns, lines);
    shown.classList.add("wordy");
    return make("div", { class: "panel", role: "group", "aria-label": `Details of ${row.id}` },
      whole("What each run shows", shown),
      make("div", {},
        part("Calls", make("code", {}, row.op), ` on ${row.device}`),
        part("What could expose a difference", text(row.provokes || "Nothing: these inputs leave the op no choice of order.")),
        row.why ? part("Why", linked(row.why)) : null),
      make("div", {},
        reasons.length ? part("Inconclusive, or underpowered", ...reasons.map((told) => make("p", { class: "told" }, told))) : null));
  };

  for (const element of all(".changed .op")) {
    const button = $("button", element);
    button.className = "open";
    foldable({ element, button }, () => $(".rows", element));
  }
  for (const row of rows) foldable(row, () => below(row, panel(row)));
  const names = ["q", "class", "step", "finding", "verdict", "power", "slower", "family", "direction", "device", "sort"];
  const choose = filters({ items: rows, names, choice: "class", matches, told: (shown) => `${shown} of ${rows.length} ${rows.length === 1 ? "row" : "rows"}`, everything: "all", suggested: [...new Set(rows.map(({ spec }) => spec))], applied });
  $("#everything").addEventListener("click", () => choose(["all"]));
})();
