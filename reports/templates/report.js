// Filters the matrix and draws the panel of a row when it is opened. Text from run files enters the page as
// text nodes only.
"use strict";
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const data = (id) => JSON.parse($("#" + id).textContent);
  const runs = data("runs");
  const pool = data("pool");

  // The fields of a row, a cell and a process, as reports/html.py writes them; * stands for a place in the pool.
  const shape = (names) => names.split(" ").map((name) => [name.replace("*", ""), name.endsWith("*")]);
  const ROW = shape("run family* spec* op* case* direction* dtype* device* provokes* why* finding* reason* inputs* outputs* weak* constant* groups* differences* cells processes cost");
  const CELL = shape("verdict* words* bound* reason* alert* seeded where* alerts*");
  const COST = shape("words* ratio told* variants samples calls");
  const PROCESS = shape("mode* process outcome* executions distinct first forward seconds setup told*");
  const read = (fields, values) =>
    Object.fromEntries(fields.map(([name, shared], place) => [name, shared ? pool[values[place]] : values[place]]));
  const MODES = ["off", "on", "warn_only"];

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
      .concat(row.weak ? ["low power"] : [], row.constant === null ? [] : ["constant", row.constant])
      .join(" ")
      .toLowerCase();
    return row;
  });

  // The state of the filters, which the address holds too: #q=…&finding=a,b&verdict=on:raises&device=…&run=1&power=low&slower=2
  const controls = Object.fromEntries(
    ["q", "finding", "verdict", "device", "run", "power", "slower"].map((name) => [name, $("#" + name)]).filter(([, element]) => element),
  );
  const tiles = all(".tile");
  const FINDINGS = tiles.map((tile) => tile.dataset.finding).filter(Boolean); // The first tile stands for all.
  const several = $('option[value="*"]', controls.finding);
  let findings = new Set();

  const COSTS = { 2: ({ ratio }) => ratio >= 2, timed: ({ ratio }) => ratio !== null, untimed: ({ ratio }) => ratio === null };
  const matches = (row, words, { verdict, device, run, power, slower }) => {
    const [mode, name] = verdict.includes(":") ? verdict.split(":") : ["", verdict];
    // Only rows that raise have a third cell, which is looked at when it is asked for.
    const cells = mode ? row.cells.slice(MODES.indexOf(mode), MODES.indexOf(mode) + 1) : row.cells.slice(0, 2);
    return (
      (!findings.size || findings.has(row.finding)) &&
      (!name || cells.some((cell) => cell.verdict === name)) &&
      (!device || row.device === device) &&
      (!run || row.run === Number(run) - 1) &&
      (!power || (power === "low") === (row.weak !== null)) &&
      (!slower || COSTS[slower](row.cost)) &&
      words.every((word) => row.text.includes(word))
    );
  };

  const apply = () => {
    const values = { verdict: "", device: "", run: "" }; // A page of one run has no list of runs.
    for (const [name, element] of Object.entries(controls)) values[name] = element.value;
    const words = values.q.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const hide = !matches(row, words, values);
      shown += !hide;
      if (row.element.hidden !== hide) row.element.hidden = hide;
      if (row.panel) row.panel.hidden = hide || row.button.getAttribute("aria-expanded") !== "true";
    }
    for (const body of all(".family > table > tbody")) body.hidden = !$("tr.row:not([hidden])", body);
    for (const family of all(".family")) family.hidden = !$("tbody:not([hidden])", family);
    for (const tile of tiles) tile.setAttribute("aria-pressed", String(tile.dataset.finding ? findings.has(tile.dataset.finding) : !findings.size));
    several.hidden = findings.size < 2;
    controls.finding.value = findings.size > 1 ? "*" : [...findings][0] || "";
    $("#shown").textContent = `${shown} of ${rows.length} ${rows.length === 1 ? "row" : "rows"}`;
    $(".nothing").hidden = shown > 0;
  };

  const save = () => {
    const told = Object.entries(controls)
      .map(([name, element]) => [name, name === "finding" ? FINDINGS.filter((one) => findings.has(one)).join(",") : element.value])
      .filter(([, value]) => value)
      .map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
    history.replaceState(null, "", told.length ? "#" + told.join("&") : location.pathname + location.search);
  };

  const restore = () => {
    const told = new URLSearchParams(location.hash.slice(1));
    for (const [name, element] of Object.entries(controls)) {
      if (name === "finding") continue;
      element.value = told.get(name) || "";
      if (element.selectedIndex === -1) element.value = ""; // An address that names what this page has not.
    }
    findings = new Set((told.get("finding") || "").split(",").filter((one) => FINDINGS.includes(one)));
    apply();
  };

  const changed = () => {
    apply();
    save();
  };
  let waiting;
  controls.q.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(changed, 120);
  });
  for (const element of Object.values(controls)) {
    element.addEventListener("change", () => {
      if (element === controls.finding && element.value !== "*") findings = new Set(element.value ? [element.value] : []);
      changed();
    });
  }
  for (const tile of tiles) {
    tile.addEventListener("click", () => {
      const { finding } = tile.dataset;
      if (!finding) findings.clear();
      else if (!findings.delete(finding)) findings.add(finding);
      changed();
    });
  }
  $(".bar").addEventListener("submit", (event) => event.preventDefault());
  $(".bar").addEventListener("reset", () => {
    clearTimeout(waiting);
    findings.clear();
    setTimeout(changed); // After the browser has emptied the controls.
  });
  addEventListener("hashchange", restore);

  // Table headers stick below the filters, however many lines those take.
  const measure = () => document.documentElement.style.setProperty("--bar", `${$(".bar").offsetHeight}px`);
  new ResizeObserver(measure).observe($(".bar"));

  // Links within the page leave the address to the filters.
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    const target = link && document.getElementById(link.getAttribute("href").slice(1));
    if (!target) return;
    event.preventDefault();
    target.scrollIntoView();
    target.focus({ preventScroll: true });
  });

  // The panel of a row.
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null));
    return element;
  };
  const part = (title, ...children) => make("section", {}, make("h4", {}, title), ...children);
  const text = (told) => make("p", {}, told);
  const whole = (title, ...children) => {
    const element = part(title, ...children);
    element.className = "whole";
    return element;
  };
  // Sources are links; nothing but a web address becomes one.
  const linked = (told) =>
    make("p", {}, ...told.split(/(https:\/\/[^\s<>"'),;]*[^\s<>"'),;.:])/).map((one, place) =>
      place % 2 ? make("a", { href: one, rel: "noreferrer" }, one) : one));
  // A column named with a # in front holds numbers.
  const table = (caption, columns, lines) => {
    const attributes = columns.map((name) => (name.startsWith("#") ? { class: "number" } : {}));
    const line = (tag, cells, more) =>
      make("tr", {}, ...cells.map((cell, place) => make(tag, { ...attributes[place], ...more }, String(cell))));
    const head = make("thead", {}, line("th", columns.map((name) => name.replace("#", "")), { scope: "col" }));
    const body = make("tbody", {}, ...lines.map((cells) => line("td", cells, {})));
    const made = make("table", {}, make("caption", { class: "hidden" }, caption), head, body);
    return make("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": caption }, made);
  };
  const word = (value) => (value === null || value === "" ? "none" : value);
  // A mode's observation that never ran has no counts and no times.
  const counted = (process, value) => (process.executions ? value : "none");
  const quote = (told) => `'${told.replaceAll("'", `'\\''`)}'`;

  const modePart = (cell, place) =>
    part(["With the flag off", "With the flag on", "Made to run: the flag on, with warn_only"][place],
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

  const FAR = ["Mode", "Output", "First differing execution", "Examined of those that differed", "Elements differing", "#Largest absolute", "#Largest relative", "#Largest ULP", "#V_ermv", "#V_c"];
  const panel = (row) => {
    const modes = ["Off", "On", "Made to run"].slice(0, row.cells.length);
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
      row.differences.length ? whole("How far from the first execution, at most", table("How far", FAR, row.differences)) : null,
      whole("Run it again", command(row)));
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.open");
    if (!button) return;
    const row = rows[Number(button.getAttribute("aria-controls").slice(1))];
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    if (!row.panel) {
      const width = String(row.element.cells.length);
      row.panel = make("tr", { class: "detail", id: button.getAttribute("aria-controls") }, make("td", { colspan: width }, panel(row)));
      row.element.after(row.panel);
    }
    row.panel.hidden = !open;
  });

  restore();
})();
