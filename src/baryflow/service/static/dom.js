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

const NOVEL = 0.99; // novelty above which a row is unlike anything known

export const isNovel = (row) => row.novelty > NOVEL;

export const describeNovelty = (novelty) => (novelty === null || novelty === undefined ? "novelty unknown" : novelty > NOVEL ? "novel" : `novelty\u00a0${formatPercent(novelty)}`);

// A long label up to its first " · ", cut to a length.
export const shorten = (label, length = 14) => {
  const first = String(label).split(" · ")[0];
  return first.length > length ? `${first.slice(0, length - 1)}…` : first;
};

// "a", "a and b", "a, b and c".
export const joinWithAnd = (items) => (items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`);

// Eight colours that remain distinct for colour-blind people. Beyond eight classes the dash pattern changes
// too, so that colour is never the only difference.
const DASHES = ["", "5 3", "1.5 2.5", "8 3 2 3", "3 6"];
export const color = (i) => `var(--c${((i % 8) + 8) % 8})`;
export const dash = (i) => DASHES[Math.floor(i / 8) % DASHES.length];

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
