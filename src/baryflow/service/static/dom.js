// Helpers for elements and text. Names and labels come from users: they are only ever inserted as text.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export const element = (tag, properties = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

export const svgElement = (tag, attributes = {}, text) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

export const formatPercent = (share, digits = 0) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`);

// Not "100 %" unless it is certain, nor "0 %" unless it is impossible.
export const formatProbability = (p) => (p === null || p === undefined ? "–" : p > 0.995 && p < 1 ? ">\u00a099\u00a0%" : p < 0.005 && p > 0 ? "<\u00a01\u00a0%" : formatPercent(p));

export const formatCount = (n) => Number(n ?? 0).toLocaleString("en");

export const formatNumber = (x) => {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (size < 1e-9) return "0"; // a rounding error
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return x.toExponential(1);
  return Number(x.toPrecision(size >= 100 ? 4 : 3)).toLocaleString("en", { maximumFractionDigits: 4 });
};

// A full timestamp is shortened to the time of day; any other text is shown unchanged.
export const formatTime = (time) => (/^\d{4}-\d\d-\d\dT.*Z$/.test(time) ? new Date(time).toLocaleTimeString("en-GB") : String(time));

// "4 s", "12 min", "3 h", "2 days".
export const formatDuration = (seconds) => {
  const [size, unit] = [[86400, "day"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= size) ?? [1, "s"];
  const n = Math.floor(seconds / size);
  return `${formatCount(n)}\u00a0${unit}${unit === "day" && n !== 1 ? "s" : ""}`;
};

// The time of a row, or its position if it has none.
export const formatMoment = (time, position) => (time ? formatTime(time) : `row ${formatCount(position)}`);

export const plural = (n, noun, nouns = `${noun}s`) => `${formatCount(n)} ${n === 1 ? noun : nouns}`;

const NOVEL = 0.99; // novelty above which a row is unlike everything known

export const isNovel = (row) => row.novelty > NOVEL;

export const describeNovelty = (novelty) => (novelty === null || novelty === undefined ? "novelty unknown" : novelty > NOVEL ? "unlike everything known" : "like known rows");

let hiding = 0;

// Show a message for some seconds.
export const say = (text) => {
  $("said").textContent = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => { $("said").textContent = ""; }, 8000);
};

// A long label up to its first " · ", cut to a length: only where the full name can be seen elsewhere.
export const shorten = (label, length = 14) => {
  const first = String(label).split(" · ")[0];
  return first.length > length ? `${first.slice(0, length - 1)}…` : first;
};

// "a", "a and b", "a, b and c".
export const joinWithAnd = (items) => (items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`);

// Classes and sources have colours of their own, which colour-blind people can distinguish. Beyond eight classes
// the dash pattern changes too, and sources are named in charts: colour is never the only difference.
const DASHES = ["", "5 3", "1.5 2.5", "8 3 2 3", "3 6"];
const neutral = new Set(); // classes of normal operation, which are grey
export const setNeutral = (codes) => { neutral.clear(); for (const i of codes) neutral.add(i); };
export const color = (i) => (neutral.has(i) ? "var(--normal)" : `var(--c${((i % 8) + 8) % 8})`);
export const dash = (i) => (neutral.has(i) ? "" : DASHES[Math.floor(i / 8) % DASHES.length]);

export const legendKey = (i) => {
  const svg = svgElement("svg", { class: "key", viewBox: "0 0 24 16", "aria-hidden": "true" });
  svg.append(svgElement("ellipse", { cx: 12, cy: 8, rx: 10, ry: 6, fill: color(i), stroke: color(i), "stroke-dasharray": dash(i) }));
  return svg;
};

export const table = (head, rows) => {
  const body = element("tbody");
  for (const [first, ...rest] of rows) {
    body.append(element("tr", {}, element("th", { scope: "row", textContent: first }), ...rest.map((cell) => element("td", { className: "n", textContent: cell }))));
  }
  const top = element("tr", {}, ...head.map((name, i) => element("th", { scope: "col", className: i ? "n" : "", textContent: name })));
  return element("table", {}, element("thead", {}, top), body);
};

// With explicit roles: browsers drop the table semantics where the style stacks the cells on narrow screens.
export const grid = (head, rows) => element("table", { role: "table", className: head.length > 2 ? "many" : "" },
  element("thead", { role: "rowgroup" }, element("tr", { role: "row" },
    ...head.map((name, i) => element("th", { role: "columnheader", scope: "col", textContent: name, className: i ? "n" : "" })))),
  element("tbody", { role: "rowgroup" }, ...rows.map(([first, ...rest]) => element("tr", { role: "row" },
    element("th", { role: "rowheader", scope: "row", textContent: first }),
    ...rest.map((cell) => element("td", { role: "cell", className: "n" }, cell))))));
