// Small things that everything else is made of. Names and labels come from users: they are only ever text.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export const make = (tag, properties = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
};

export const draw = (tag, attributes = {}, text) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

export const percent = (share, digits = 0) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`);

// Never "100 %" of what is not certain, nor "0 %" of what is possible.
export const chance = (p) => (p === null || p === undefined ? "–" : p > 0.995 && p < 1 ? ">\u00a099\u00a0%" : p < 0.005 && p > 0 ? "<\u00a01\u00a0%" : percent(p));

export const count = (n) => Number(n ?? 0).toLocaleString("en");

export const number = (x) => {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  if (size < 1e-9) return "0"; // what rounding has left over
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return x.toExponential(1);
  return Number(x.toPrecision(size >= 100 ? 4 : 3)).toLocaleString("en", { maximumFractionDigits: 4 });
};

// A long label by what stands before its first " · ", or cut.
export const brief = (label, most = 14) => {
  const first = String(label).split(" · ")[0];
  return first.length > most ? `${first.slice(0, most - 1)}…` : first;
};

// Eight colours that can be told apart by people who see few of them; beyond eight classes the line
// changes too, so that colour is never the only difference.
const LINES = ["", "5 3", "1.5 2.5", "8 3 2 3", "3 6"];
export const color = (i) => `var(--c${((i % 8) + 8) % 8})`;
export const line = (i) => LINES[Math.floor(i / 8) % LINES.length];

export const key = (i) => {
  const svg = draw("svg", { class: "key", viewBox: "0 0 24 16", "aria-hidden": "true" });
  svg.append(draw("ellipse", { cx: 12, cy: 8, rx: 10, ry: 6, fill: color(i), stroke: color(i), "stroke-dasharray": line(i) }));
  return svg;
};

export const table = (head, rows) => {
  const body = make("tbody");
  for (const row of rows) {
    const [first, ...rest] = row;
    body.append(make("tr", {}, make("th", { scope: "row", textContent: first }), ...rest.map((cell) => make("td", { className: "n", textContent: cell }))));
  }
  const top = make("tr", {}, ...head.map((name, i) => make("th", { scope: "col", className: i ? "n" : "", textContent: name })));
  return make("table", {}, make("thead", {}, top), body);
};

// As a sentence has them: "a", "a and b", "a, b and c".
export const list = (items) => (items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`);
