// Filters the matrix and draws the panels of its rows.
(() => {
  const runs = data("runs");

  // The fields of a row, a cell, a cost and a process, as reports/report/html.py writes them.
  const ROW = shape("run family* spec* op* case* direction* dtype* device* provokes* why* finding* reason* inputs* outputs* weak* serial* constant* groups* differences* cells processes cost expected*");
  const CELL = shape("mode* verdict* words* bound* reason* alert* seeded where* alerts*");
  const COST = shape("words* ratio told* variants samples calls");
  const PROCESS = shape("mode* process outcome* executions distinct first forward seconds setup told*");

  const elements = all("tr.row");
  const rows = data("rows").map((values, place) => {
    const row = read(ROW, values);
    row.cells = row.cells.map((cell) => read(CELL, cell));
    row.cost = read(COST, row.cost);
    row.element = elements[place];
    row.button = $(".open", row.element);
    row.id = [row.spec, row.case, row.direction, row.dtype].join(":");
    row.text = [row.id, row.family, row.op, row.device, runs[row.run].name, row.finding]
      .concat(row.cells.flatMap((cell) => [cell.verdict, cell.reason, cell.alert, ...cell.alerts, cell.seeded ? "seeded" : ""]))
      .concat(row.weak ? ["low power"] : [], row.serial ? ["serial"] : [], row.constant === null ? [] : ["constant", row.constant])
      .concat((row.expected || []).flat(2))
      .join(" ")
      .toLowerCase();
    return row;
  });

  const matches = (row, { verdict, device, run, power, slower }, findings) => {
    return (
      (!findings.size || findings.has(row.finding)) &&
      (!verdict || judged(MODES.map((mode) => row.cells.find((cell) => cell.mode === mode)?.verdict), verdict)) &&
      (!device || row.device === device) &&
      (!run || row.run === Number(run) - 1) &&
      powered(row, power) &&
      (!slower || COSTS[slower](row.cost.ratio))
    );
  };
  const applied = () => {
    for (const body of all(".family > table > tbody")) body.hidden = !$("tr.row:not([hidden])", body);
    for (const family of all(".family")) family.hidden = !$("tbody:not([hidden])", family);
  };

  // A mode's observation that never ran has no counts and no times.
  const counted = (process, value) => (process.executions ? value : "none");
  const quote = (told) => `'${told.replaceAll("'", `'\\''`)}'`;

  const LIVED = { off: "With the flag off", on: "With the flag on", warn_only: "The flag on, with warn_only", unfilled: "The flag on, fill off" };
  const modePart = (cell) =>
    part(LIVED[cell.mode],
      text(cell.where ? `${cell.words}, ${cell.where}` : cell.words),
      cell.alerts.length ? make("p", {}, "Alerts: ", ...cell.alerts.flatMap((one, n) => [n ? ", " : "", make("code", {}, one)])) : null,
      cell.bound ? text(`0 of n leaves a rate of differing up to ${cell.bound} plausible (95 %).`) : null,
      cell.seeded ? text("Draws random numbers: the generator was seeded before every execution.") : null,
      cell.reason ? make("p", { class: "told" }, cell.reason) : null);

  const command = (row) => {
    // The id is a pattern to scan, in which these characters stand for themselves only in brackets.
    const line = `detmatrix scan ${quote(row.id.replace(/[[*?]/g, "[$&]"))} ${runs[row.run].options}`;
    const copy = make("button", { type: "button", class: "copy" }, "Copy");
    const box = make("pre", {}, line);
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(line);
        copy.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(box); // Without leave to use the clipboard the line is marked instead.
        copy.textContent = "Marked";
      }
    });
    return make("div", { class: "command" }, box, copy);
  };

  const processTable = (row) => {
    const lines = row.processes.map((values) => {
      const it = read(PROCESS, values);
      const line = [it.mode, it.process, it.outcome, counted(it, it.executions), counted(it, it.distinct), word(it.first)];
      if (row.direction === "backward") line.push(counted(it, it.forward));
      return line.concat([counted(it, it.seconds), counted(it, it.setup)]);
    });
    const columns = ["Mode", "Process", "Outcome", "#Executions", "#Distinct", "#First differing"]
      .concat(row.direction === "backward" ? ["#Forward differing"] : [], ["#Seconds", "#Setup seconds"]);
    return table("Processes", columns, lines);
  };

  const costPart = ({ words, told, variants, samples, calls }) =>
    part("Cost", text(words),
      told ? make("p", { class: "told" }, told) : null,
      variants ? table("Cost", ["Flag", "Median (quartiles)", "Peak memory"], variants) : null,
      variants ? text(`${samples} samples of ${calls} ${calls === 1 ? "execution" : "executions"} each, taken in turns.`) : null);

  // What files of a build say: expected, never measured.
  const expectedPart = ([build, about, documented, binary, trace, measured, links]) =>
    whole(`Expected of ${build}${about ? `, ${about}` : ""}`,
      table("Expected", ["Documented", "Binary (expected)", "Trace (expected)", "Measured"], [[documented, binary, trace, measured]]),
      links.length ? make("ul", {}, ...links.map((one) => make("li", {}, make("code", {}, one)))) : null);

  const FAR = ["Mode", "Output", "First differing execution", "Examined of those that differed", "Elements differing", "#Largest absolute", "#Largest relative", "#Largest ULP", "#V_ermv", "#V_c"];
  const panel = (row) => {
    const modes = row.cells.map((cell) => ({ off: "Off", on: "On", unfilled: "fill off" })[cell.mode] || cell.mode);
    const outputs = row.outputs.map(([name, shape_, dtype, ...counts]) => [name, `(${shape_.join(", ")}${shape_.length === 1 ? "," : ""})`, dtype, ...counts.map(word)]);
    const groups = row.groups.map(([name, ...counts]) => [name, ...counts.map(word)]);
    return make("div", { class: "panel", role: "group", "aria-label": `Details of ${row.id}` },
      make("div", {},
        part("Calls", make("code", {}, row.op), ` on ${row.device}`),
        part("What could expose a difference", text(row.provokes)),
        row.why ? part("Why", linked(row.why)) : null,
        part("Inputs", row.inputs.length ? make("ul", {}, ...row.inputs.map((one) => make("li", {}, make("code", {}, one)))) : text("None were recorded.")),
        row.reason ? part("Why inconclusive", make("p", { class: "told" }, row.reason)) : null,
        row.weak ? part("Low power", make("p", { class: "told" }, row.weak)) : null,
        row.constant === null ? null : part("Constant", make("p", { class: "told" }, row.constant)),
        costPart(row.cost)),
      make("div", {},
        ...row.cells.map(modePart),
        part("Perturbations, and executions that differed within their process",
          groups.length ? table("Perturbations", ["Perturbation", ...modes.map((mode) => "#" + mode)], groups) : text("Not recorded.")),
        part("Compared outputs, and executions that differed within their process",
          outputs.length ? table("Compared outputs", ["Output", "Shape", "Dtype", ...modes.map((mode) => "#" + mode)], outputs) : text("None were recorded.")),
        part("Processes", row.processes.length ? processTable(row) : text("None were recorded."))),
      ...(row.expected || []).map(expectedPart),
      row.differences.length ? whole("Magnitude of differences from the first execution, at most", table("Magnitude of differences", FAR, row.differences)) : null,
      whole("Run it again", command(row)));
  };

  panels(rows, panel);
  filters({ rows, names: ["q", "finding", "verdict", "device", "run", "power", "slower"], choice: "finding", matches, applied });

  // The overloads: their filters are not part of the address.
  const form = $("form.overloads");
  if (form) {
    const overloads = all(".overload").map((element) => ({ element, worst: element.dataset.worst, text: element.textContent.toLowerCase() }));
    const lists = all("details.never");
    const choose = () => {
      const worst = form.elements.worst.value;
      const words = wordsOf(form.elements.q.value);
      const shown = sift(overloads, (one) => (!worst || one.worst === worst) && words.every((word) => one.text.includes(word)));
      for (const list of lists) {
        list.hidden = !$("code:not([hidden])", list);
        list.open = words.length > 0 && !list.hidden;
      }
      $(".shown", form).textContent = `${shown} of ${overloads.length} overloads`;
    };
    form.addEventListener("input", choose);
    form.addEventListener("submit", (event) => event.preventDefault());
    choose();
  }
})();
