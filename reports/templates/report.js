// Filters the ops, unfolds one into its rows, and a row into all that is known of it.
(() => {
  const runs = data("runs");
  const signs = data("signs");
  const FURTHER = signs.columns || []; // The columns beside off and on, each with what it means.

  const rowOf = (op, place) => {
    const row = record("rows", place);
    Object.assign(row, record("results", row.result), { cost: record("costs", row.cost) });
    row.id = [op.name, row.case, row.direction, row.dtype].join(":");
    row.anchor = runs.length > 1 ? `${row.id}@${row.run + 1}` : row.id;
    row.cells = row.cells.map((cell) => record("cells", cell));
    row.processes = row.processes.map((one, number) => ({ ...record("processes", one), time: row.times[number] }));
    row.groups = row.groups.map((one) => record("groups", one).line);
    row.text = [row.id, op.family, row.call, row.device, runs[row.run].name, row.finding, row.note]
      .concat(row.cells.flatMap((cell) => [cell.verdict, cell.reason, cell.seeded, ...cell.alerts]), row.alerts)
      .concat(row.weak ? ["low power"] : [], row.serial === "serial" ? ["serial"] : [], row.constant === null ? [] : ["constant", row.constant])
      .concat(row.said.flat())
      .join(" ")
      .toLowerCase();
    return row;
  };

  const table_ = $(".ops");
  const columns = Number(table_.dataset.columns);
  const facts = data("rows");
  const ops = all("tbody.op", table_).map((element, place) => {
    const { rows: places, notable, about, instead } = facts[place];
    const button = $("button", element);
    button.className = "open";
    const name = button.textContent;
    let rows;
    // Only the rows that are asked for are made.
    const op = { ...record("ops", about), notable, instead, element, button, name, small: name.toLowerCase() };
    return Object.defineProperty(op, "rows", { get: () => (rows ||= places.map((one) => rowOf(op, one))) });
  });

  // What a filter of rows asks for; an op is shown if a row of it is.
  const suits = (row, { verdict, device, run, power, slower, further }) =>
    (!further || row.said.some(([found], place) => further === `${FURTHER[place][0]}:${found}`)) &&
    (!verdict || judged(MODES.map((mode) => row.cells.find((cell) => cell.mode === mode)?.verdict), verdict)) &&
    (!device || row.device === device) &&
    (!run || row.run === Number(run) - 1) &&
    powered({ weak: row.weak, serial: row.serial }, power) &&
    (!slower || COSTS[slower](row.cost.ratio));
  const isClean = (op) => op.finding === "deterministic" && !op.notable;
  const isOf = (op, findings) => findings.has(op.finding) || (op.notable || []).some((one) => findings.has(one));
  const matches = (op, values, findings, words) => {
    op.named = words.every((word) => op.small.includes(word));
    op.asked = ["verdict", "device", "run", "power", "slower", "further"].some((name) => values[name]) || !op.named;
    op.shows = (row) => !op.asked || (suits(row, values) && (op.named || words.every((word) => row.text.includes(word))));
    if (findings.size ? !isOf(op, findings) : hides(values, words) && isClean(op)) return false;
    return !op.asked || op.rows.some(op.shows);
  };
  // Clean ops are folded until something is asked for that only they may have.
  const hides = ({ clean, verdict, power, slower, further }, words) =>
    clean === "hidden" && !(verdict || power || slower || further || words.length);

  const fold = $("tbody.fold", table_);
  const chosen = document.head.appendChild(make("style", {}));
  const applied = (values, findings, words) => {
    for (const op of ops) if (op.panel) limit(op);
    // Those whose names match stand first.
    const order = words.length ? [...ops].sort((one, other) => other.named - one.named) : ops;
    if (order.some((op, place) => op.element !== table_.tBodies[place])) fold.before(...order.map((op) => op.element));
    fold.hidden = !ops.some(isClean) || !hides(values, words) || findings.size > 0;
    if (!fold.hidden) $(".nothing").hidden = true;
    // Where there is no room for all of them, one column is shown.
    const first = 2 * Number(values.column) - 1;
    if (columns > 1) chosen.textContent = `@media screen and (max-width: ${columns > 4 ? 84 : 60}rem) {
      .ops > .op > tr:first-child > [class]:not(:nth-child(n + ${first + 1}):nth-child(-n + ${first + 2})), .ops .of:not(:nth-child(${Number(values.column) + 1})),
      .ops .way:not(:nth-child(n + ${first}):nth-child(-n + ${first + 1})) { display: none } }`;
    fit();
  };
  // What is unfolded is as wide as the columns that are there.
  const fit = () => {
    const line = ops.find(({ element }) => !element.hidden)?.element.rows[0];
    const width = line ? [...line.cells].filter((cell) => cell.checkVisibility()).length : 1;
    for (const { panel } of ops) if (panel) panel.cells[0].colSpan = width;
    fold.rows[0].cells[0].colSpan = width;
  };
  addEventListener("resize", fit);
  const limit = (op) => {
    for (const row of op.drawn) {
      row.element.hidden = !op.shows(row);
      if (row.panel) row.panel.hidden = row.element.hidden || !isOpen(row);
    }
  };

  // A pasted control character is a key that was pressed; in a pattern any character stands for it.
  const quote = (told) => `'${told.replace(/\p{C}/gu, "?").replaceAll("'", `'\\''`)}'`;
  const copied = (button, line, box) => button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = "Copied";
    } catch {
      if (box) getSelection().selectAllChildren(box); // Without leave to use the clipboard the line is marked instead.
      button.textContent = box ? "Marked" : "Not copied";
    }
  });
  const command = (line) => {
    const box = make("pre", {}, line);
    const copy = make("button", { type: "button", class: "copy" }, "Copy");
    copied(copy, line, box);
    return make("div", { class: "command" }, box, copy);
  };
  const repro = (row) => `detmatrix repro ${quote(runs[row.run].name)} ${quote(row.id)} -o repro.py`;
  const replay = (row) => `detmatrix repro --replay ${quote(runs[row.run].name)} ${quote(row.id)} --python PYTHON_WITH_TORCH_FOR_CUDA`;
  // The id is a pattern to scan, in which these characters stand for themselves only in brackets.
  const rerun = (row) => `detmatrix scan ${quote(row.id.replace(/[[*?]/g, "[$&]"))} ${runs[row.run].options}`;

  // A line of an op's rows.
  const badge = (sort, name) => make("b", { class: `${sort} ${name}` }, make("i", { "aria-hidden": "true" }, signs[sort][name]), name);
  const some = (tag, told, attributes = {}) => (told ? make(tag, attributes, told) : null);
  // Of n executions the part that differed, as a bar below the words.
  const share = (details) => {
    const [, k, n] = (details || "").match(/^(\d+) of (\d+) differed/) || [];
    return Number(k) ? make("i", { class: "k", style: `--k: ${(100 * k) / n}%` }) : null;
  };
  const cell = ({ verdict, details, cause }, further) =>
    make("td", {}, ...[badge("v", verdict), some("span", details), share(details), some("small", cause), some("span", further)].filter(Boolean));
  const finding = (row) =>
    make("td", {}, badge("f", row.finding), some("span", row.note), some("small", row.joint),
      row.weak && make("span", {}, make("a", { class: "weak", href: `#power-${row.run}-${runs[row.run].weak.indexOf(row.weak)}` }, "low power")),
      row.serial === "serial" ? make("span", {}, make("a", { class: "weak", href: `#serial-${row.run}` }, "serial")) : null,
      some("span", runs[row.run].distrust, { class: "untrusted" }));
  const codes = (names) => names.flatMap((one, n) => [n ? ", " : "", make("code", {}, one)]);
  const address = (id) => `#${encodeURIComponent(id).replaceAll("%3A", ":").replaceAll("%40", "@")}`;
  const link = (id, of) => make("a", { class: "here", href: address(id), "aria-label": `Link to ${of}` }, "#");
  const HEADS = ["Case", "Direction", "Dtype", "Flag off", "Flag on", "Finding", "Alert caller", "Cost", ...FURTHER.map(([name]) => name), ...(runs.length > 1 ? ["Run"] : [])];
  const line = (row) => {
    row.button = make("button", { type: "button", class: "open" }, row.case);
    const copy = make("button", { type: "button", class: "small" }, "Copy repro");
    copied(copy, repro(row));
    row.element = make("tr", { class: "row" },
      make("th", { scope: "row" }, row.button, make("span", { class: "links" }, link(row.anchor, row.anchor), copy)),
      make("td", {}, row.direction), make("td", {}, row.dtype), cell(row.cells[0], null), cell(row.cells[1], row.further), finding(row),
      make("td", {}, ...(row.alerts.length ? codes(row.alerts) : [make("span", {}, "none")])),
      make("td", {}, row.cost.ratio === null ? make("span", {}, row.cost.words) : row.cost.slow ? make("b", { class: "slower" }, row.cost.words) : row.cost.words),
      ...row.said.map(([found, told]) =>
        make("td", {}, found && make("b", { class: `f ${found}` }, make("i", { "aria-hidden": "true" }, signs.c[found]), found),
          some("span", told))),
      ...(runs.length > 1 ? [make("td", {}, runs[row.run].label)] : []));
    for (const [place, told] of [...row.element.cells].entries()) if (place) told.dataset.label = HEADS[place];
    foldable(row, () => below(row, panel(row)));
    return row.element;
  };
  const unfold = (op) => {
    op.drawn = op.rows;
    const lists = op.lists.flatMap(([torch, lines], n) => [n ? "; " : "Documented in ", make("b", {}, torch), ": ", lines]);
    const grid = make("table", { class: `grid${runs.length > 1 ? " several" : ""}${FURTHER.length ? " further" : ""}` },
      make("caption", { class: "hidden" }, `${op.name}: verdict with the flag off and on, finding, alert callers and cost of each case`),
      make("thead", {}, make("tr", {}, ...HEADS.map((head) => make("th", { scope: "col" }, head)))),
      make("tbody", {}, ...op.drawn.map(line)));
    const head = make("p", { class: "about" }, link(op.name, op.name), ` ${op.family}; ${op.counts}. `, ...lists);
    const panel_ = make("tr", { class: "rows" }, make("td", {}, make("h3", { class: "hidden" }, `Rows of ${op.name}`), head,
      FURTHER.length ? make("div", { class: "sideways", role: "group", tabindex: "0", "aria-label": `Rows of ${op.name}` }, grid) : grid,
      op.instead ? make("details", {}, make("summary", {}, "Write this instead"),
        ...op.instead.flatMap(([told, code]) => [make("ul", {}, ...told.map((one) => make("li", {}, one))), command(code)])) : null));
    op.element.append(panel_);
    op.panel = panel_;
    limit(op);
    fit();
    return panel_;
  };
  for (const op of ops) foldable(op, unfold);

  // What a row unfolds.
  const modePart = ({ title, told: [first, ...rest], alerts, reason }) =>
    part(title, text(first), alerts.length ? make("p", {}, "Alerts: ", ...codes(alerts)) : null, ...rest.map(text),
      some("p", reason, { class: "told" }));
  const processTable = ({ processes, direction }) => {
    const forward = direction === "backward" ? { "#Forward differing": "forward" } : {};
    const columns = { Mode: "mode", Process: "process", Outcome: "outcome", "#Executions": "executions", "#Distinct": "distinct",
      "#First differing": "first", ...forward };
    return table("Processes", [...Object.keys(columns), "#Milliseconds"],
      processes.map((it) => [...Object.values(columns).map((name) => word(it[name])), it.executions === null ? "none" : it.time]));
  };
  const costPart = ({ words, told, lines, samples }) =>
    part("Cost", text(words), some("p", told, { class: "told" }),
      lines.length ? table("Cost", ["Flag", "Median (quartiles)", "Peak memory"], lines) : null, some("p", samples));

  const FAR = ["Mode", "Output", "First differing execution", "Examined of those that differed", "Elements differing", "#Largest absolute", "#Largest relative", "#Largest ULP", "#V_ermv", "#V_c"];
  const panel = (row) => {
    const modes = row.cells.map(({ head }) => head);
    // Of outputs that never differed no counts are kept; a mode that ended without one has none.
    const never = row.cells.map((one) => (one.details ? 0 : null));
    const outputs = row.outputs.map((one, place) => [...Object.values(record("outputs", one)), ...(row.differing[place] || never).map(word)]);
    return make("div", { class: "panel", role: "group", "aria-label": `Details of ${row.anchor}` },
      whole("A script that shows it, and needs only torch", command(repro(row))),
      row.device.startsWith("simulated") ? whole("Replay it without a GPU", command(replay(row))) : null,
      make("div", {},
        part("Calls", make("code", {}, row.call), ` on ${row.device}`),
        part("What could expose a difference", text(row.provokes)),
        row.why ? part("Why", linked(row.why)) : null,
        row.libraries.length ? part("Documented by libraries, not measured", make("ul", {}, ...row.libraries.map((one) => make("li", {}, linked(one))))) : null,
        row.engines ? part("Engines of cuDNN, not measured", text(row.engines)) : null,
        part("Inputs", row.inputs.length ? make("ul", {}, ...row.inputs.map((one) => make("li", {}, make("code", {}, record("inputs", one).text)))) : text("None were recorded.")),
        row.reason ? part(`Why ${row.finding}`, make("p", { class: "told" }, row.reason)) : null,
        row.weak ? part("Low power", make("p", { class: "told" }, row.weak)) : null,
        row.constant === null ? null : part("Constant", make("p", { class: "told" }, row.constant)),
        costPart(row.cost)),
      make("div", {},
        ...row.cells.map(modePart),
        part("Perturbations, and executions that differed within their process",
          row.groups.length ? table("Perturbations", ["Perturbation", ...modes.map((mode) => "#" + mode)], row.groups.map(([name, ...counts]) => [name, ...counts.map(word)])) : text("Not recorded.")),
        part("Compared outputs, and executions that differed within their process",
          outputs.length ? table("Compared outputs", ["Output", "Shape", "Dtype", ...modes.map((mode) => "#" + mode)], outputs) : text("None were recorded.")),
        part("Processes", row.processes.length ? processTable(row) : text("None were recorded."))),
      row.differences.length ? whole("Magnitude of differences from the first execution, at most", table("Magnitude of differences", FAR, row.differences)) : null,
      whole("Run it again", command(rerun(row))));
  };

  // An address names an op, or a row of it.
  const find = (id) => ops.filter(({ name }) => id === name || id.startsWith(`${name}:`)).sort((one, other) => other.name.length - one.name.length)[0];
  const show = (op, id) => {
    const row = op.rows.find(({ anchor }) => anchor === id);
    if (!row) return reveal(op);
    if (!isOpen(op)) folds.get(op.button)();
    row.element.hidden = false;
    reveal(row);
  };
  const choose = filters({
    items: ops, names: ["q", "finding", "verdict", "device", "run", "power", "slower", "further", "clean", "column"], choice: "finding",
    matches, applied, find, show, suggested: ops.map(({ name }) => name),
    widened: () => {
      $("#clean").value = "shown";
      return new Set();
    },
    told: (shown) => `${shown} of ${ops.length} ${ops.length === 1 ? "op" : "ops"}`,
  });
  // By the name, by the worst of each kind of device, and by what stands behind these.
  const worst = [...$("#finding").options].map(({ value }) => value);
  const cells = (op) => [...op.element.rows[0].cells];
  const rank = (cell) => (worst.includes(cell.className) ? worst.indexOf(cell.className) : worst.length);
  const factor = (text) => Number(text.match(/[\d.]+/) || 0);
  const ofDevices = all(".of", table_).map((head, place) => [head, (op) => Math.min(...cells(op).slice(1 + 2 * place, 3 + 2 * place).map(rank))]);
  const others = all("thead th[rowspan]", table_).map((head, place) => [head, (op) => {
    const { textContent } = cells(op)[place && place + 2 * columns];
    return head.classList.contains("cost") ? -factor(textContent) : textContent;
  }]);
  sortable([...ofDevices, ...others], ops, (sorted) => {
    ops.splice(0, ops.length, ...sorted);
    $("#q").dispatchEvent(new Event("change"));
  });
  $("button", fold).addEventListener("click", () => {
    $("#clean").value = "shown";
    choose([]);
  });

  // The overloads, drawn when they are opened; their filters are not part of the address.
  const form = $("form.overloads");
  if (form) form.closest("details").addEventListener("toggle", () => {
    const drawn = data("overloads").map(({ title, executed: places, never }) => {
      const executed = places.map((place) => record("overloads", place));
      const grid = table(`Executed overloads of ${title}`, ["Overload", "Sort", "Kernel", "Rows", "Worst finding", "Found in"],
        executed.map(({ name, sort, kernel, rows, op }) => [name, sort, kernel || "not listed", rows, "", op]));
      grid.classList.add("box", "tall");
      const lines = all("tbody tr", grid);
      for (const [place, element] of lines.entries()) {
        element.worst = executed[place].worst;
        element.cells[4].append(badge("f", element.worst));
      }
      const lists = Object.entries(never).map(([name, names]) => {
        const list = make("details", { class: "never" }, make("summary", {}, `Never reached: ${name}: ${names.length}`),
          make("p", {}, ...names.flatMap((one) => [make("code", {}, one), " "])));
        for (const one of all("code", list)) one.worst = "never";
        return list;
      });
      form.after(grid, ...lists);
      return { lines, lists };
    });
    const overloads = drawn.flatMap(({ lines, lists }) => [...lines, ...lists.flatMap((list) => all("code", list))])
      .map((element) => ({ element, worst: element.worst, text: element.textContent.toLowerCase() }));
    const chooseOverloads = () => {
      const worst = form.elements.worst.value;
      const words = wordsOf(form.elements.q.value);
      const shown = sift(overloads, (one) => (!worst || one.worst === worst) && words.every((one_) => one.text.includes(one_)));
      for (const list of drawn.flatMap(({ lists }) => lists)) {
        list.hidden = !$("code:not([hidden])", list);
        list.open = words.length > 0 && !list.hidden;
      }
      $(".shown", form).textContent = `${shown} of ${overloads.length} overloads`;
    };
    form.addEventListener("input", chooseOverloads);
    form.addEventListener("submit", (event) => event.preventDefault());
    chooseOverloads();
  }, { once: true });
})();
