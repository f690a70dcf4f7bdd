// Three uPlot charts along the stream, each with a caption and a table.
import { $, formatCount, formatNumber, formatPercent, joinWithAnd, shorten, table } from "./dom.js";

const TABLE_ROWS = 12; // evenly spaced along the stream
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
    const legend = this.container.querySelector(".u-legend")?.offsetHeight ?? 24;
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
      legend: { live: false },
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

export class Charts {
  constructor() {
    this.charts = Object.fromEntries(["resemblance", "reliability", "loss"].map((id) => [id, new Chart(id)]));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.last && this.update(...this.last));
  }

  update(picture, marks) {
    this.last = [picture, marks];
    const { history, sources } = picture, rows = history.rows;
    const share = { share: { format: (value) => formatPercent(value), range: [0, 1] } };
    this.charts.resemblance.update(rows, sources.map((name, i) => (
      { name: shorten(name, 18), values: history.resemblance[name], scale: "share", color: `--c${i % 8}`, dash: Math.floor(i / 8) % 5 })), marks, share);
    this.charts.reliability.update(rows, [
      { name: "reliability", values: history.reliability, scale: "share", color: "--c0" },
      { name: "coverage", values: history.coverage, scale: "share", color: "--c2", dash: 2 },
      { name: "novel rows", values: history.novelty, scale: "share", color: "--c5", dash: 1 }], marks, share);
    const hasLikelihood = history.likelihood.some((value) => value !== null);
    this.charts.loss.update(rows, [
      { name: "loss", values: history.loss, scale: "loss", color: "--c2" },
      ...(hasLikelihood ? [{ name: "log-likelihood (right)", values: history.likelihood, scale: "likelihood", color: "--c7", dash: 1 }] : [])], marks,
      { loss: { format: formatNumber, range: (_, low, high) => [0, 1.1 * (high || 1)] }, ...(hasLikelihood ? { likelihood: { format: formatNumber, side: 1 } } : {}) });
    this.describe(picture, marks);
  }

  describe({ history, sources }, marks) {
    const rows = history.rows, n = rows.length, drifts = marks.filter((mark) => mark.kind === "drift");
    const marked = drifts.length ? ` Dashed line: drift at row ${joinWithAnd(drifts.slice(-3).map((mark) => formatCount(mark.row)))}.` : "";
    if (!n) {
      for (const id of ["resemblance", "reliability", "loss"]) $(`${id}-caption`).textContent = "The model has not learned from the target yet.";
      return;
    }
    const now = sources.map((name) => [name, history.resemblance[name].at(-1)]).sort((a, b) => b[1] - a[1]);
    $("resemblance-caption").textContent = `After ${formatCount(rows.at(-1))} rows, most like ${joinWithAnd(now.slice(0, 3).map(([name, value]) => `${name} (${formatPercent(value)})`))}.${marked}`;
    const trend = (values) => `${formatPercent(values[0])} after the first batch, ${formatPercent(values.at(-1))} now`;
    $("reliability-caption").textContent = `Reliability: ${trend(history.reliability)}. Coverage: ${trend(history.coverage)}. Novel rows: ${trend(history.novelty)}.${marked}`;
    const likely = history.likelihood.filter((value) => value !== null);
    $("loss-caption").textContent = `Loss: ${formatNumber(history.loss[0])} after the first batch, ${formatNumber(history.loss.at(-1))} now.${likely.length ? ` Mean log-likelihood of a row: ${formatNumber(likely[0])} at first, ${formatNumber(likely.at(-1))} now.` : ""}${marked}`;
    const chosen = [...new Set(Array.from({ length: Math.min(TABLE_ROWS, n) }, (_, i) => Math.round(i * (n - 1) / Math.max(1, Math.min(TABLE_ROWS, n) - 1))))];
    const fill = (id, head, cells) => {
      if ($(`${id}-table`).closest("details").open || !$(`${id}-table`).children.length) $(`${id}-table`).replaceChildren(table(["rows", ...head], chosen.map((i) => [formatCount(rows[i]), ...cells(i)])));
    };
    fill("resemblance", sources, (i) => sources.map((name) => formatPercent(history.resemblance[name][i])));
    fill("reliability", ["reliability", "coverage", "novel rows"], (i) => ["reliability", "coverage", "novelty"].map((name) => formatPercent(history[name][i])));
    fill("loss", ["loss", "log-likelihood"], (i) => [formatNumber(history.loss[i]), formatNumber(history.likelihood[i])]);
  }
}
