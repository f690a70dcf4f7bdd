// The mixture of the target over those of its sources, with animated transitions.
import { $, color, dash, element, formatPercent, formatProbability, joinWithAnd, legendKey, shorten, svgElement } from "./dom.js";

// Width in SVG units, milliseconds of a transition, radius in standard deviations, largest ratio of the scales.
const WIDTH = 1000, TRANSITION = 700, SIGMAS = 1.3, STRETCH = 2.5;
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class MixturePlot {
  constructor(explain) {
    this.svg = $("plane");
    this.explain = explain;
    this.shown = [];
    this.highlighted = null;
    this.layers = Object.fromEntries(["sources", "rows", "target", "labels"].map((name) => [name, svgElement("g", { class: `layer-${name}` })]));
    this.svg.append(this.layers.sources, this.layers.target, this.layers.rows, this.layers.labels);
    this.svg.addEventListener("pointermove", (event) => this.showTip(event));
    this.svg.addEventListener("pointerleave", () => { $("tip").hidden = true; this.highlight(null); });
    new ResizeObserver(() => this.fit()).observe(this.svg);
  }

  // Clear everything, for another target.
  clear() {
    this.shown = [];
    this.picture = null;
    this.known = this.goal = "";
    for (const layer of Object.values(this.layers)) layer.replaceChildren();
    $("chips").replaceChildren();
  }

  update(picture) {
    const first = !this.picture;
    this.picture = picture;
    this.index = new Map(picture.classes.map((name, i) => [name, i]));
    const known = JSON.stringify(picture.ellipses.sources);
    if (known !== this.known) {
      this.known = known;
      this.fit();
    }
    this.sources();
    this.rows();
    this.animate(picture.ellipses.target, first || reducedMotion.matches);
    this.chips();
    this.describe();
  }

  // Fit the view to all sources, with a margin.
  fit() {
    if (!this.picture) return;
    const all = Object.values(this.picture.ellipses.sources).flat();
    if (!all.length) return;
    const ends = (axis) => {
      const low = Math.min(...all.map((one) => one[axis] - one.rx)), high = Math.max(...all.map((one) => one[axis] + one.rx));
      return [(low + high) / 2, (high - low) || 1];
    };
    const [x, width] = ends("x"), [y, height] = ends("y"), box = this.svg.getBoundingClientRect();
    // Text keeps its size on the screen at any size of the plot.
    this.unit = WIDTH / (box.width || WIDTH);
    this.high = (box.height || 600) * this.unit;
    // The two axes have no common unit: each fills the plot, within STRETCH.
    let across = WIDTH / width / 1.08, up = this.high / height / 1.12;
    across = Math.min(across, STRETCH * up);
    up = Math.min(up, STRETCH * across);
    this.map = { x, y, across, up };
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${this.high.toFixed(1)}`);
    const matrix = `matrix(${across} 0 0 ${-up} ${WIDTH / 2 - across * x} ${this.high / 2 + up * y})`;
    this.layers.sources.setAttribute("transform", matrix);
    this.layers.target.setAttribute("transform", matrix);
    this.sources();
    this.rows();
    this.draw(this.shown);
  }

  at(one) {
    const { x, y, across, up } = this.map;
    return [WIDTH / 2 + across * (one.x - x), this.high / 2 - up * (one.y - y)];
  }

  shape(node, one) {
    const least = 4 * this.unit / Math.max(this.map.across, this.map.up);
    node.setAttribute("cx", one.x.toFixed(4));
    node.setAttribute("cy", one.y.toFixed(4));
    node.setAttribute("rx", Math.max(SIGMAS * one.rx, least).toFixed(4));
    node.setAttribute("ry", Math.max(SIGMAS * one.ry, least).toFixed(4));
    node.setAttribute("transform", `rotate(${one.angle.toFixed(1)} ${one.x.toFixed(4)} ${one.y.toFixed(4)})`);
  }

  ellipse(one, kind) {
    const i = this.index.get(one.class) ?? 0;
    const node = svgElement("ellipse", { class: kind, fill: color(i), stroke: color(i), "stroke-dasharray": dash(i) });
    node.dataset.class = one.class;
    return node;
  }

  sources() {
    if (!this.map) return;
    const { sources } = this.picture.ellipses, { resemblance } = this.picture.history;
    // The source that the target resembles most is drawn strongest.
    const share = (name) => resemblance[name]?.at(-1) ?? 1 / Object.keys(sources).length;
    const most = Math.max(...Object.keys(sources).map(share));
    this.layers.sources.replaceChildren(...Object.entries(sources).map(([name, all]) => {
      const group = svgElement("g"), strong = 0.3 + 0.7 * share(name) / (most || 1);
      group.dataset.source = name;
      group.append(...all.map((one) => {
        const node = this.ellipse(one, "source");
        // Not the opacity of the group: rounding shows when hundreds of layers overlap.
        node.setAttribute("stroke-opacity", (0.4 * strong).toFixed(3));
        node.setAttribute("fill-opacity", (0.05 * strong).toFixed(3));
        node.dataset.tip = `${one.class}, in ${name}`;
        this.shape(node, one);
        return node;
      }));
      return group;
    }));
    this.dim();
  }

  rows() {
    if (!this.map) return;
    const recent = this.picture.recent.filter((one) => one.x !== undefined && one.x !== null);
    const nodes = recent.map((one, i) => {
      const name = String(one.given ?? one.now ?? one.label);
      const [x, y] = this.at(one), known = this.index.get(name);
      const node = svgElement("circle", { class: "row", cx: x.toFixed(1), cy: y.toFixed(1), r: (3.6 * this.unit).toFixed(2),
        fill: known === undefined ? "var(--ink)" : color(known), "fill-opacity": (0.15 + 0.85 * (i + 1) / recent.length).toFixed(2) });
      node.dataset.class = name;
      node.dataset.tip = `row ${one.position}: ${one.given ? `labelled ${one.given}` : `${name}, ${formatProbability(one.now_probability ?? one.probability)}`}`;
      node.addEventListener("click", () => this.explain(one.position));
      return node;
    });
    if (recent.length) {
      const [x, y] = this.at(recent.at(-1));
      nodes.push(svgElement("circle", { class: "newest", cx: x.toFixed(1), cy: y.toFixed(1), r: (8 * this.unit).toFixed(2) }));
    }
    this.layers.rows.replaceChildren(...nodes);
    this.dim();
  }

  // Move each ellipse from the nearest previous one of its class to its new position.
  animate(target, immediately) {
    const goal = JSON.stringify(target);
    if (goal === this.goal) return undefined; // nothing has changed
    this.goal = goal;
    const before = [...this.shown];
    const pairs = target.map((one) => {
      let best = -1, nearest = Infinity;
      before.forEach((old, i) => {
        const distance = old && old.class === one.class ? Math.hypot(old.x - one.x, old.y - one.y) : Infinity;
        if (distance < nearest) [best, nearest] = [i, distance];
      });
      const old = best < 0 ? { ...one, rx: 0, ry: 0 } : before[best];
      if (best >= 0) before[best] = null;
      return [old, one];
    });
    cancelAnimationFrame(this.frame);
    if (immediately) return this.draw(target);
    const begun = performance.now();
    let frame = 0;
    const step = (now) => {
      const done = Math.min(1, Math.max(0, (now - begun) / TRANSITION)), t = done * done * (3 - 2 * done);
      this.draw(pairs.map(([old, one]) => interpolate(old, one, t)), done === 1 || frame++ % 4 === 0);
      if (done < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
    return undefined;
  }

  draw(target, labels = true) {
    this.shown = target;
    if (!this.map) return;
    const layer = this.layers.target;
    const heavy = [...target].sort((a, b) => b.weight - a.weight);
    // Many overlapping ellipses are as dark as few.
    const many = new Map();
    for (const one of heavy) many.set(one.class, (many.get(one.class) ?? 0) + 1);
    while (layer.children.length > heavy.length) layer.lastChild.remove();
    heavy.forEach((one, i) => {
      let node = layer.children[i];
      if (!node) {
        node = this.ellipse(one, "target");
        layer.append(node);
      }
      const code = this.index.get(one.class) ?? 0;
      node.setAttribute("fill", color(code));
      node.setAttribute("stroke", color(code));
      node.setAttribute("stroke-dasharray", dash(code));
      node.setAttribute("fill-opacity", Math.min(0.4, 0.75 * many.get(one.class) ** -0.85).toFixed(3));
      node.setAttribute("stroke-opacity", (many.get(one.class) ** -0.45).toFixed(3));
      node.dataset.class = one.class;
      node.dataset.tip = `${one.class}: ${formatPercent(one.weight, 1)} of the target's rows`;
      this.shape(node, one);
    });
    if (labels) this.labels();
    this.dim();
  }

  // Label each class at its heaviest ellipse, unless the label would cover another.
  labels() {
    const heaviest = new Map();
    for (const one of this.shown) if (!(heaviest.get(one.class)?.weight > one.weight)) heaviest.set(one.class, one);
    const taken = [], nodes = [];
    for (const one of [...heaviest.values()].sort((a, b) => b.weight - a.weight)) {
      const text = shorten(one.class), [x, y] = this.at(one);
      const half = 3.9 * this.unit * text.length, high = 8 * this.unit;
      const covers = taken.some(([u, v, w]) => Math.abs(u - x) < w + half && Math.abs(v - y) < 2 * high);
      if (covers && this.highlighted !== one.class) continue;
      taken.push([x, y, half]);
      const node = svgElement("text", { x: x.toFixed(1), y: (y + 4 * this.unit).toFixed(1), transform: `translate(${x} ${y}) scale(${this.unit}) translate(${-x} ${-y})` }, text);
      node.dataset.class = one.class;
      nodes.push(node);
    }
    this.layers.labels.replaceChildren(...nodes);
  }

  chips() {
    const names = this.picture.classes;
    if (this.chipNames === names.join("\n") && $("chips").children.length) return;
    this.chipNames = names.join("\n");
    $("chips").replaceChildren(...names.map((name, i) => {
      const chip = element("button", { type: "button", title: name, ariaPressed: "false" }, legendKey(i), element("span", { textContent: names.length > 12 ? shorten(name) : name }));
      chip.setAttribute("aria-label", name);
      chip.addEventListener("click", () => this.select(name));
      chip.addEventListener("pointerenter", () => this.highlight(name));
      chip.addEventListener("pointerleave", () => this.highlight(null));
      return chip;
    }));
  }

  // A selected class stays highlighted until it is selected again.
  select(name) {
    this.selected = this.selected === name ? null : name;
    [...$("chips").children].forEach((chip, i) => chip.setAttribute("aria-pressed", String(this.picture.classes[i] === this.selected)));
    this.highlight(null);
  }

  highlight(name) {
    this.highlighted = name ?? this.selected ?? null;
    if (!this.picture) return;
    this.labels();
    this.dim();
    this.describe();
  }

  dim() {
    this.svg.classList.toggle("highlighting", this.highlighted !== null);
    for (const node of this.svg.querySelectorAll("[data-class]")) node.classList.toggle("dim", this.highlighted !== null && node.dataset.class !== this.highlighted);
  }

  showTip(event) {
    const tip = $("tip"), text = event.target.dataset?.tip;
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = this.svg.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.min(x + 14, Math.max(0, box.width - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y > box.height - 60 ? y - tip.offsetHeight - 10 : y + 16}px`;
  }

  describe() {
    const { ellipses, history, recent, sources } = this.picture;
    const sentences = [];
    if (this.highlighted) {
      const here = ellipses.target.filter((one) => one.class === this.highlighted);
      const weight = here.reduce((sum, one) => sum + one.weight, 0);
      sentences.push(`${this.highlighted}: ${formatPercent(weight, 1)} of the target, in ${here.length} ${here.length === 1 ? "ellipse" : "ellipses"}.`);
    } else if (!ellipses.target.length) {
      sentences.push(`The model has not learned from the target yet. Outlines: the ${sources.length} sources.`);
    } else {
      const weights = new Map();
      for (const one of ellipses.target) weights.set(one.class, (weights.get(one.class) ?? 0) + one.weight);
      const order = [...weights].sort((a, b) => b[1] - a[1]);
      const most = order.slice(0, 3).map(([name, share]) => `${name} (${formatPercent(share)})`);
      const mostly = order[0][1] > 1.5 / order.length ? `mostly ${joinWithAnd(most)}` : "in similar proportions";
      const alike = sources.map((name) => [name, history.resemblance[name]?.at(-1) ?? 0]).sort((a, b) => b[1] - a[1])[0];
      sentences.push(`Filled: ${ellipses.target.length} components of the target, ${mostly}. Outlines: the ${sources.length} sources, ${alike[0]} drawn strongest because the target resembles it most.`);
      if (recent.length) sentences.push("Dots: the most recent rows.");
    }
    $("mixture-caption").textContent = sentences.join(" ");
  }
}

const interpolate = (old, one, t) => {
  const turn = ((one.angle - old.angle + 270) % 180) - 90; // the shorter rotation
  const mixed = { class: one.class, weight: one.weight, angle: old.angle + t * turn };
  for (const name of ["x", "y", "rx", "ry"]) mixed[name] = old[name] + t * (one[name] - old[name]);
  return mixed;
};
