// What the pages share: filters that the address remembers, panels that are drawn when they are opened, links, tables.
// Text from run files enters a page as text nodes only. The script of a page stands behind this one.
"use strict";
const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const data = (id) => JSON.parse($("#" + id).textContent);

// A table has a column for each field of its records; a column that holds few values has each once, and where it stands.
const unpacked = (column) => (Array.isArray(column) ? (place) => column[place] : (place) => column.of[column.at ? column.at[place] : 0]);
const tables = Object.fromEntries(Object.entries($("#tables") ? data("tables") : {}).map(([name, table]) =>
  [name, Object.entries(table).map(([field, column]) => [field, unpacked(column)])]));
const record = (table, place) => Object.fromEntries(tables[table].map(([field, column]) => [field, column(place)]));

// Filters of what a row shows in one run: a verdict, in either mode or in one of them, and a cost.
const MODES = ["off", "on", "warn_only", "unfilled", "no_workspace"];
const COSTS = { 2: (ratio) => ratio >= 2, timed: (ratio) => ratio !== null, untimed: (ratio) => ratio === null };
// What sameness is worth: "low" power, "serial", "unknown" whether it is, or "other", which is none of these.
const powered = ({ weak, serial }, asked) =>
  !asked || { low: weak !== null, serial: serial === "serial", unknown: serial === "unknown", other: weak === null && serial === null }[asked];
const judged = (verdicts, asked) => {
  const [mode, name] = asked.includes(":") ? asked.split(":") : ["", asked];
  // Few rows have more verdicts than two; those are looked at when they are asked for.
  return mode ? verdicts[MODES.indexOf(mode)] === name : verdicts.slice(0, 2).includes(name);
};

// What a reader typed, and the items that stay when a list is filtered.
const wordsOf = (typed) => typed.toLowerCase().split(/\s+/).filter(Boolean);
const sift = (items, keep) => {
  let shown = 0;
  for (const item of items) {
    const hide = !keep(item);
    shown += !hide;
    if (item.element.hidden !== hide) item.element.hidden = hide;
  }
  return shown;
};

// The names whose last part shares most pairs of letters with what was typed.
const pairs = (word) => new Set([...word].slice(1).map((letter, place) => word[place] + letter));
const near = (typed, names) => {
  const asked = pairs(typed.trim().toLowerCase().split(".").pop());
  const likeness = (name) => {
    const has = pairs(name.toLowerCase().split(".").pop());
    return (2 * [...has].filter((one) => asked.has(one)).length) / (has.size + asked.size);
  };
  return names.map((name) => [likeness(name), name]).filter(([like]) => like >= 0.5).sort(([a], [b]) => b - a).slice(0, 3).map(([, name]) => name);
};

// Sorts items by what the head that is clicked stands for, and back when it is clicked again.
//   heads: each with a function that returns the number or the text of an item
//   placed: puts the items into their new order
const sortable = (heads, items, placed) => {
  for (const [head, key] of heads) {
    const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const [one] of heads) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const keys = new Map(items.map((item) => [item, key(item)]));
      const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b));
      placed([...items].sort((a, b) => (up ? 1 : -1) * compare(keys.get(a), keys.get(b))));
    });
  }
};

// Shows the items that match. The state of the controls is in the address too: #q=…&finding=a,b&verdict=on:raises. One
// of the controls, the choice, takes several values: the tiles switch them. An address that is the id of an item, or
// of what is in one, shows that item.
//   items: each with its element; those that a link can lead to also with a button that unfolds them
//   names: the controls, by their ids, as the address names them
//   matches: tells of an item, the values of the controls, the set chosen and the words typed whether the item is shown
//   everything: the value of the choice that shows every item, if showing all is not the default
//   widened: makes the controls such that every item is shown, and returns the set to choose
//   applied: called with the values of the controls, the set chosen and the words when items have been shown and hidden
//   told: says how many are shown
//   suggested: names, of which those close to what was typed are offered where no item matches
//   find: returns the item of an id;  show: unfolds it and goes there
const filters = ({ items, names, choice, matches, told, everything = "", suggested = [], widened = () => new Set([everything]), applied = () => {},
  find = (id) => items.find(({ element }) => element.id === id), show = reveal }) => {
  const controls = Object.fromEntries(names.map((name) => [name, $("#" + name)]).filter(([, element]) => element));
  const tiles = all("button.tile");
  const choices = tiles.map((tile) => tile.dataset[choice]).filter(Boolean); // One tile stands for the default.
  const several = $('option[value="*"]', controls[choice]);
  let chosen = new Set();

  // Buttons that are right stay: the one that is clicked takes the focus from what was typed, which is applied then.
  const suggest = (found) => {
    const shown = all(".near");
    if (shown.map(({ value }) => value).join() === found.join()) return;
    for (const one of shown) one.remove();
    $(".nothing").append(...found.map((name) => {
      const button = make("button", { type: "button", class: "copy near", value: name }, `Did you mean ${name}?`);
      button.addEventListener("click", () => {
        controls.q.value = name;
        choose(everything ? [everything] : []); // Of rows that a page leaves out at first, too.
      });
      return button;
    }));
  };

  // A control that this page has no use for is not there, and asks for nothing.
  const current = () => Object.fromEntries(names.map((name) => [name, controls[name] ? controls[name].value : ""]));

  const apply = () => {
    const values = current();
    const words = wordsOf(values.q);
    const shown = sift(items, (item) => matches(item, values, chosen, words));
    for (const tile of tiles) tile.setAttribute("aria-pressed", String(tile.dataset[choice] ? chosen.has(tile.dataset[choice]) : !chosen.size));
    several.hidden = chosen.size < 2;
    controls[choice].value = chosen.size > 1 ? "*" : [...chosen][0] || "";
    $("#shown").textContent = told(shown);
    $(".nothing").hidden = shown > 0;
    suggest(shown ? [] : near(values.q, suggested));
    applied(values, chosen, words);
  };

  const save = () => {
    const told = Object.entries(controls)
      .map(([name, element]) => [name, name === choice ? choices.filter((one) => chosen.has(one)).join(",") : element.value])
      .filter(([name, value]) => value && value !== controls[name].dataset.usual)
      .map(([name, value]) => `${name}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`);
    history.replaceState(null, "", told.length ? "#" + told.join("&") : location.pathname + location.search);
  };

  const addressed = () => {
    try {
      const id = decodeURIComponent(location.hash.slice(1));
      return id && find(id);
    } catch {
      return undefined; // An address that was cut short.
    }
  };

  const restore = () => {
    const told = new URLSearchParams(location.hash.slice(1));
    for (const [name, element] of Object.entries(controls)) {
      if (name === choice) continue;
      element.value = told.get(name) || element.dataset.usual || "";
      if (element.selectedIndex === -1) element.selectedIndex = 0; // An address that names what this page has not.
    }
    chosen = new Set((told.get(choice) || "").split(",").filter((one) => choices.includes(one)));
    const item = addressed();
    if (item && !matches(item, current(), chosen, [])) chosen = widened();
    apply();
    if (!item) return;
    const id = decodeURIComponent(location.hash.slice(1));
    // While a page loads the browser has yet to go to the item itself, and takes the focus with it.
    if (document.readyState === "loading") addEventListener("load", () => show(item, id));
    else show(item, id);
  };

  const changed = () => {
    apply();
    save();
  };
  const choose = (values) => {
    chosen = new Set(values);
    changed();
  };
  let waiting;
  controls.q.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(changed, 120);
  });
  for (const element of Object.values(controls)) {
    element.addEventListener("change", () => {
      if (element === controls[choice] && element.value !== "*") chosen = new Set(element.value ? [element.value] : []);
      changed();
    });
  }
  for (const tile of tiles) {
    tile.addEventListener("click", () => {
      const value = tile.dataset[choice];
      // The tiles of no value and of everything stand alone.
      if (!value) choose([]);
      else if (chosen.has(value)) choose([...chosen].filter((one) => one !== value));
      else if (value === everything) choose([value]);
      else choose([...[...chosen].filter((one) => one !== everything), value]);
    });
  }
  $(".bar").addEventListener("submit", (event) => event.preventDefault());
  $(".bar").addEventListener("reset", () => {
    clearTimeout(waiting);
    setTimeout(() => choose([])); // After the browser has emptied the controls.
  });
  addEventListener("hashchange", () => {
    const item = addressed();
    if (item && !item.element.hidden) show(item, decodeURIComponent(location.hash.slice(1))); // The filters stay as they are.
    else restore();
  });
  restore();
  return choose;
};

// Table headers stick below the filters, however many lines those take.
const measure = () => document.documentElement.style.setProperty("--bar", `${$(".bar").offsetHeight}px`);
new ResizeObserver(measure).observe($(".bar"));

// As on the sites where people search most, a slash goes to the search.
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  $(".bar input[type=search]").focus();
});

// Links within the page leave the address to the filters, but for those of rows.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]:not(.here)');
  const target = link && document.getElementById(link.getAttribute("href").slice(1));
  if (!target) return;
  event.preventDefault();
  if (target.closest("details")) target.closest("details").open = true;
  target.scrollIntoView();
  target.focus({ preventScroll: true });
});

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

// What a button unfolds is drawn when it is opened first, and only hidden when it is closed.
//   item: has the button
//   draw: returns the element that is unfolded, in its place
const folds = new Map();
const foldable = (item, draw) => {
  const id = `d${folds.size}`;
  item.button.setAttribute("aria-expanded", "false");
  folds.set(item.button, () => {
    const open = !isOpen(item);
    if (!item.panel) {
      item.panel = draw(item);
      item.panel.id = id;
      item.button.setAttribute("aria-controls", id);
    }
    item.button.setAttribute("aria-expanded", String(open));
    item.panel.hidden = !open;
  });
};
const isOpen = ({ button }) => button.getAttribute("aria-expanded") === "true";
document.addEventListener("click", (event) => folds.get(event.target.closest("button"))?.());
const reveal = (item) => {
  if (!isOpen(item)) folds.get(item.button)();
  item.element.scrollIntoView();
  item.button.focus({ preventScroll: true });
};
// The panel of a row stands below it.
const below = (row, child) => {
  const panel = make("tr", { class: "detail" }, make("td", { colspan: String(row.element.cells.length) }, child));
  row.element.after(panel);
  return panel;
};
