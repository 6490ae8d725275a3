// Every element with text of its own, with the colours it is painted in: the nearest opaque background counts.
const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
const parse = (told) => told.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const ground = (e) => {
  for (; e; e = e.parentElement) {
    const told = parse(getComputedStyle(e).backgroundColor);
    if (told.length < 4 || told[3] === 1) return told;
  }
  return [255, 255, 255];
};
const worst = {};
for (const e of document.querySelectorAll("body *")) {
  const bare = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!bare || !e.checkVisibility() || e.closest("script, .skip, .hidden")) continue;
  const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const name = `${e.tagName} ${e.className}`;
  worst[name] = Math.min(worst[name] || 99, ratio);
}
return worst;
