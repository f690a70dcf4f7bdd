// Diagnoses along the stream: a lane for each class, with equal diagnoses in a row as one band.
import { $, color, element, formatCount, formatMoment, formatTime, legendKey, plural, table } from "./dom.js";

const MAX_LANES = 10, MAX_LISTED = 50;

// ---- when alarms were active

const alarmSpans = (changes, alarms, end) => {
  const spans = [], open = new Map();
  for (const { change, alarm, row } of changes) {
    if ((change === "raised" || change === "repeated") && !open.has(alarm)) open.set(alarm, row);
    if ((change === "cleared" || change === "reclassified") && open.has(alarm)) {
      spans.push({ alarm, from: open.get(alarm), to: row });
      open.delete(alarm);
    }
  }
  // In a flood, alarms are raised without a change of their own.
  for (const one of alarms) if (one.active) spans.push({ alarm: one.alarm, from: open.get(one.alarm) ?? one.since_row, to: end });
  return spans;
};

// ---- lanes

const lanesOf = (bands, classes) => {
  const rows = new Map();
  for (const band of bands) rows.set(band.label, (rows.get(band.label) ?? 0) + band.rows);
  const names = [...rows.keys()].sort((a, b) => rows.get(b) - rows.get(a));
  const shown = names.length > MAX_LANES ? names.slice(0, MAX_LANES - 1) : names;
  const order = (name) => (classes.includes(name) ? classes.indexOf(name) : classes.length);
  const lanes = shown.sort((a, b) => order(a) - order(b)).map((name) => ({ name, labels: [name] }));
  const rest = names.filter((name) => !shown.includes(name));
  return rest.length ? [...lanes, { name: `${formatCount(rest.length)} other diagnoses`, labels: rest }] : lanes;
};

const describeBand = ({ label, rows, first, last, since, until }) =>
  `${label}: ${plural(rows, "row")}, ${rows === 1 ? formatMoment(since, first) : `${formatMoment(since, first)} to ${formatMoment(until, last)}`}`;

export const showTimeline = (picture, alarms, marks) => {
  const { bands, classes, changes } = picture;
  $("timeline").hidden = !bands.length;
  if (!bands.length) return;
  const begin = bands[0].first, end = bands.at(-1).last, width = end + 1 - begin;
  const at = (row) => `${(100 * Math.min(1, Math.max(0, (row - begin) / width))).toFixed(3)}%`;
  const stretch = (className, from, to) => {
    const node = element("i", { className });
    Object.assign(node.style, { left: at(from), width: `max(2px, ${(100 * (to - Math.max(from, begin)) / width).toFixed(3)}%)` });
    return node;
  };
  const spans = alarmSpans(changes, alarms, end + 1).filter((span) => span.to >= begin);
  const inside = marks.filter((mark) => mark.row >= begin && (mark.kind === "drift" || mark.kind === "mark"));
  $("lanes").replaceChildren(...lanesOf(bands, classes).map(({ name, labels }) => {
    const code = classes.indexOf(name), known = labels.length === 1 && code >= 0;
    const track = element("div", { className: "track" }, ...bands.filter((band) => labels.includes(band.label)).map((band, i, all) => {
      // A band reaches to the next row, so that there are no gaps between positions of windows.
      const next = bands[bands.indexOf(all[i]) + 1], node = stretch("band", band.first, next ? next.first : end + 1);
      node.style.background = known ? color(code) : "var(--soft)";
      node.title = describeBand(band);
      return node;
    }), ...spans.filter((span) => labels.includes(span.alarm)).map((span) => stretch("alarm", span.from, span.to)),
    ...inside.map((mark) => { const line = stretch(mark.kind, mark.row, mark.row); line.title = mark.message ?? mark.words; return line; }));
    return element("div", { className: "lane" }, element("span", { className: "name" }, known ? legendKey(code) : "", element("span", { textContent: name })), track);
  }));
  $("timeline-begin").textContent = formatMoment(bands[0].since, begin);
  $("timeline-end").textContent = formatMoment(bands.at(-1).until, end);
  const now = bands.at(-1), before = bands.at(-2);
  $("timeline-caption").textContent = `Now ${now.label}, for ${plural(now.rows, "row")} since ${formatMoment(now.since, now.first)}.${before ? ` Before that ${before.label}, for ${plural(before.rows, "row")}.` : ""}`;
  $("timeline-legend").textContent = [spans.length ? "Red line: alarm active." : "", inside.some((mark) => mark.kind === "drift") ? "Dashed line: drift." : "", inside.some((mark) => mark.kind === "mark") ? "Dotted line: action in the demo." : ""].filter(Boolean).join(" ");
  if (!$("timeline-table").children.length || $("timeline-table").closest("details").open) {
    const listed = [...bands].reverse().slice(0, MAX_LISTED), timed = listed.some((band) => band.since);
    $("timeline-table").replaceChildren(table(["diagnosis", "rows", "from", "to"], listed.map((band) => [band.label, formatCount(band.rows),
      `${timed && band.since ? `${formatTime(band.since)}, ` : ""}row ${formatCount(band.first)}`, `${timed && band.until ? `${formatTime(band.until)}, ` : ""}row ${formatCount(band.last)}`])));
  }
};

// On a touch screen there are no tool tips: a tap shows the same text.
$("lanes").addEventListener("click", (event) => { if (event.target.title) $("timeline-caption").textContent = event.target.title; });
