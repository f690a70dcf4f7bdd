// uPlot charts along the stream, each with a caption and a table.
import { $, formatCount, formatNumber, formatPercent, joinWithAnd, table } from "./dom.js";

const TABLE_ROWS = 12; // evenly spaced along the stream
const MAX_SOURCES = 8; // more sources than this: the largest have lines of their own, the others share one
const IDS = ["resemblance", "reliability", "novelty", "coverage", "loss"];
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const DASHES = [[], [7, 4], [2, 3], [9, 4, 2, 4], [4, 8]];

class Chart {
  constructor(id) {
    this.container = $(id);
    this.shape = "";
    new ResizeObserver(() => this.fit()).observe(this.container);
  }

  fit() {
    if (!this.plot || !this.container.clientWidth) return;
    const size = this.size();
    if (size.width !== this.plot.width || size.height !== this.plot.height) this.plot.setSize(size);
  }

  size() {
    const legend = this.container.querySelector(".u-legend")?.offsetHeight ?? 0;
    return { width: this.container.clientWidth, height: Math.max(120, this.container.clientHeight - legend) };
  }

  // `lines`: {name, values, scale, color, dash}; `marks`: {row, kind}.
  update(rows, lines, marks, scales) {
    this.marks = marks;
    const shape = JSON.stringify([lines.map((one) => one.name), css("--ink")]);
    const data = [rows, ...lines.map((one) => one.values)];
    if (shape !== this.shape || !this.plot) this.build(shape, lines, scales, data);
    else {
      this.plot.setData(data);
      this.fit();
    }
  }

  build(shape, lines, scales, data) {
    this.shape = shape;
    this.plot?.destroy();
    this.container.replaceChildren();
    const ink = css("--soft"), grid = { stroke: css("--grid"), width: 1 };
    const axis = { stroke: ink, grid, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const y = Object.entries(scales).map(([scale, { format, side }]) => ({
      ...axis, scale, side: side ?? 3, size: 46, grid: side === 1 ? { show: false } : grid, values: (_, ticks) => ticks.map((tick) => format(tick)) }));
    this.plot = new uPlot({
      ...this.size(),
      scales: { x: { time: false }, ...Object.fromEntries(Object.entries(scales).map(([name, { range }]) => [name, range ? { range } : {}])) },
      axes: [{ ...axis, size: 30, values: (_, ticks) => ticks.map(formatCount) }, ...y],
      series: [{ label: "rows" , value: (_, v) => (v === null ? "–" : formatCount(v)) }, ...lines.map((one) => ({
        label: one.name, scale: one.scale, stroke: css(one.color), width: 2, dash: DASHES[one.dash ?? 0], spanGaps: true,
        points: { show: (plot) => plot.data[0].length < 3, size: 6 }, value: (_, v) => scales[one.scale].format(v) }))],
      cursor: { drag: { x: false, y: false }, y: false },
      legend: { live: false, show: lines.length > 1 },
      hooks: { draw: [(plot) => this.mark(plot)] },
    }, data, this.container);
    this.plot.root.setAttribute("aria-hidden", "true"); // the caption and the table hold the same data
    requestAnimationFrame(() => this.fit()); // after the legend has its height
  }

  mark(plot) {
    const { ctx, bbox } = plot;
    for (const { row, kind } of this.marks) {
      const x = Math.round(plot.valToPos(row, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.save();
      ctx.strokeStyle = css(kind === "drift" ? "--bad" : "--accent");
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash(kind === "drift" ? [6, 4] : [2, 3]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.restore();
    }
  }
}

// Lines of the sources; of many sources, those that were or are most alike, and the sum of the others.
const sourceLines = (resemblance, sources) => {
  const size = (name) => Math.max(resemblance[name].at(-1), resemblance[name].reduce((sum, value) => sum + value, 0) / resemblance[name].length);
  const order = [...sources].sort((a, b) => size(b) - size(a)), many = sources.length > MAX_SOURCES;
  const shown = many ? order.slice(0, MAX_SOURCES - 1) : order, others = order.slice(shown.length);
  const lines = sources.map((name, i) => ({ name, values: resemblance[name], scale: "share", color: `--s${i % 10}`, dash: Math.floor(i / 5) % 5 })).filter((line) => shown.includes(line.name));
  if (!others.length) return lines;
  const sum = resemblance[others[0]].map((_, i) => others.reduce((total, name) => total + resemblance[name][i], 0));
  return [...lines, { name: `the other ${others.length} sources together`, values: sum, scale: "share", color: "--soft", dash: 2 }];
};

export class Charts {
  constructor() {
    this.charts = Object.fromEntries(IDS.map((id) => [id, new Chart(id)]));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.last && this.update(...this.last));
  }

  update(picture, marks) {
    this.last = [picture, marks];
    const { history, sources } = picture, rows = history.rows;
    const share = { share: { format: (value) => formatPercent(value), range: [0, 1] } };
    $("charts").hidden = !rows.length;
    $("charts-none").hidden = rows.length > 0;
    if (!rows.length) return;
    this.charts.resemblance.update(rows, sourceLines(history.resemblance, sources), marks, share);
    for (const [id, name] of [["reliability", "reliability"], ["novelty", "novel rows"], ["coverage", "coverage"]]) {
      this.charts[id].update(rows, [{ name, values: history[id], scale: "share", color: "--accent" }], marks, share);
    }
    const hasLikelihood = history.likelihood.some((value) => value !== null);
    this.charts.loss.update(rows, [
      { name: "loss", values: history.loss, scale: "loss", color: "--accent" },
      ...(hasLikelihood ? [{ name: "log-likelihood (right)", values: history.likelihood, scale: "likelihood", color: "--bad", dash: 1 }] : [])], marks,
      { loss: { format: formatNumber, range: (_, low, high) => [0, 1.1 * (high || 1)] }, ...(hasLikelihood ? { likelihood: { format: formatNumber, side: 1 } } : {}) });
    this.describe(picture, marks);
  }

  describe({ history, sources }, marks) {
    const rows = history.rows, n = rows.length, drifts = marks.filter((mark) => mark.kind === "drift");
    const marked = drifts.length ? ` Dashed line: drift at row ${joinWithAnd(drifts.slice(-3).map((mark) => formatCount(mark.row)))}.` : "";
    const now = sources.map((name) => [name, history.resemblance[name].at(-1)]).sort((a, b) => b[1] - a[1]);
    $("resemblance-caption").textContent = `After ${formatCount(rows.at(-1))} rows, most like ${joinWithAnd(now.slice(0, 3).map(([name, value]) => `${name} (${formatPercent(value)})`))}.${marked}`;
    const trend = (values) => `${formatPercent(values[0])} after the first batch, ${formatPercent(values.at(-1))} now`;
    $("reliability-caption").textContent = `Estimated accuracy of the predictions: ${trend(history.reliability)}.${marked}`;
    $("novelty-caption").textContent = `Rows unlike everything known: ${trend(history.novelty)}.${marked}`;
    $("coverage-caption").textContent = `Classes that the target has shown so far: ${trend(history.coverage)}.${marked}`;
    const likely = history.likelihood.filter((value) => value !== null);
    $("loss-caption").textContent = `Loss: ${formatNumber(history.loss[0])} after the first batch, ${formatNumber(history.loss.at(-1))} now.${likely.length ? ` Mean log-likelihood of a row: ${formatNumber(likely[0])} at first, ${formatNumber(likely.at(-1))} now.` : ""}${marked}`;
    const chosen = [...new Set(Array.from({ length: Math.min(TABLE_ROWS, n) }, (_, i) => Math.round(i * (n - 1) / Math.max(1, Math.min(TABLE_ROWS, n) - 1))))];
    const fill = (id, head, cells) => {
      if ($(`${id}-table`).closest("details").open || !$(`${id}-table`).children.length) $(`${id}-table`).replaceChildren(table(["rows", ...head], chosen.map((i) => [formatCount(rows[i]), ...cells(i)])));
    };
    fill("resemblance", sources, (i) => sources.map((name) => formatPercent(history.resemblance[name][i])));
    for (const [id, name] of [["reliability", "reliability"], ["novelty", "novel rows"], ["coverage", "coverage"]]) fill(id, [name], (i) => [formatPercent(history[id][i])]);
    fill("loss", ["loss", "log-likelihood"], (i) => [formatNumber(history.loss[i]), formatNumber(history.likelihood[i])]);
  }
}
