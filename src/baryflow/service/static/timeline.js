// Diagnoses along the stream: a lane for each class, with equal diagnoses in a row as one band. Rows selected there can
// become the baseline.
import { describeError, post } from "./api.js";
import { diagnosisOf } from "./panels.js";
import { $, color, element, formatCount, formatMoment, formatTime, joinWithAnd, legendKey, plural, say, table } from "./dom.js";

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

let drawn = null, begins = 0, ends = 0;

export const showTimeline = (...args) => {
  const [target, picture, alarms, marks] = args, { bands, classes, changes } = picture;
  showBaseline(target, picture);
  drawn = args;
  $("timeline").hidden = !bands.length;
  if (!bands.length) return;
  const begin = bands[0].first, end = bands.at(-1).last, width = end + 1 - begin;
  [begins, ends] = [begin, end];
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
    ...(chosen ? [stretch("chosen", chosen[0], chosen[1] + 1)] : []),
    ...inside.map((mark) => { const line = stretch(mark.kind, mark.row, mark.row); line.title = mark.message ?? mark.words; return line; }));
    return element("div", { className: "lane" }, element("span", { className: "name" }, known ? legendKey(code) : "", element("span", { textContent: name })), track);
  }));
  $("timeline-begin").textContent = formatMoment(bands[0].since, begin);
  $("timeline-end").textContent = formatMoment(bands.at(-1).until, end);
  const now = bands.at(-1), before = bands.at(-2);
  // Bands keep what was diagnosed when rows came; labels and baselines may have changed it since.
  const last = picture.recent.at(-1), present = last && String(last.label) === now.label ? diagnosisOf(last).label : now.label;
  $("timeline-caption").textContent = present === now.label ? `Now ${now.label}, for ${plural(now.rows, "row")} since ${formatMoment(now.since, now.first)}.${before ? ` Before that ${before.label}, for ${plural(before.rows, "row")}.` : ""}` : `The last row was diagnosed as ${now.label} when it came, now as ${present}. The lanes keep the diagnoses of then.`;
  $("timeline-legend").textContent = [spans.length ? "Red line: alarm active." : "", inside.some((mark) => mark.kind === "drift") ? "Dashed line: drift." : "", inside.some((mark) => mark.kind === "mark") ? "Dotted line: action in the demo." : ""].filter(Boolean).join(" ");
  if (!$("timeline-table").children.length || $("timeline-table").closest("details").open) {
    const listed = [...bands].reverse().slice(0, MAX_LISTED), timed = listed.some((band) => band.since);
    $("timeline-table").replaceChildren(table(["diagnosis", "rows", "from", "to"], listed.map((band) => [band.label, formatCount(band.rows),
      `${timed && band.since ? `${formatTime(band.since)}, ` : ""}row ${formatCount(band.first)}`, `${timed && band.until ? `${formatTime(band.until)}, ` : ""}row ${formatCount(band.last)}`])));
  }
};

// On a touch screen there are no tool tips: a tap shows the same text.
$("lanes").addEventListener("click", (event) => { if (event.target.title) $("timeline-caption").textContent = event.target.title; });

// ---- the baseline: drag along the timeline, or type the positions

const MAX_ROWS = 1000, FIRST_ROWS = 30; // rows that the service remembers; rows that are offered before any are selected
let chosen = null, pressed = null, shown = null;

const choose = (first, last) => {
  chosen = [Math.max(begins, Math.min(first, last)), Math.min(ends, Math.max(first, last))];
  [$("baseline-first").value, $("baseline-last").value] = chosen;
  showTimeline(...drawn);
};

const showBaseline = (target, { bands, classes, new_classes: fresh, baseline_class: normal, baselines }) => {
  $("baseline-note").textContent = baselines.length ? `Baseline: ${joinWithAnd(baselines.map((one) => `${plural(one.rows, "row")} of ${one.class}`))}.` : "Drag along the lanes to select rows.";
  if (!bands.length || shown === target) return;
  [shown, chosen] = [target, null];
  const known = classes.slice(0, classes.length - fresh.length);
  $("baseline-class").replaceChildren(...known.map((name) => element("option", { value: name, textContent: name })));
  $("baseline-class").value = normal;
  const first = Math.max(bands[0].first, bands.at(-1).last - MAX_ROWS + 1);
  [$("baseline-first").value, $("baseline-last").value] = [first, Math.min(bands.at(-1).last, first + FIRST_ROWS - 1)];
};

const rowAt = (event) => {
  const { left, width } = $("lanes").querySelector(".track").getBoundingClientRect();
  return Math.floor(begins + (ends + 1 - begins) * Math.min(0.9999, Math.max(0, (event.clientX - left) / width)));
};

$("lanes").addEventListener("pointerdown", (event) => { if (event.target.closest(".track") && event.pointerType !== "touch") pressed = rowAt(event); });
addEventListener("pointermove", (event) => { if (pressed !== null && rowAt(event) !== pressed) choose(pressed, rowAt(event)); });
addEventListener("pointerup", () => { pressed = null; });
for (const id of ["baseline-first", "baseline-last"]) $(id).addEventListener("change", () => choose(Number($("baseline-first").value), Number($("baseline-last").value)));

$("baseline").addEventListener("submit", async (event) => {
  event.preventDefault();
  const first = Number($("baseline-first").value), n = Number($("baseline-last").value) - first + 1, label = $("baseline-class").value;
  if (n < 1 || n > MAX_ROWS) return say(`Select 1 to ${formatCount(MAX_ROWS)} rows.`);
  try {
    const answer = await post(`/v1/targets/${encodeURIComponent(shown)}/baseline`, { label, positions: Array.from({ length: n }, (_, i) => first + i) });
    const used = answer.learned + answer.pending;
    say(used ? `${plural(used, "row")} of ${label} ${used === 1 ? "is" : "are"} the baseline now.` : answer.rejected[0].reason);
  } catch (error) {
    say(describeError(error));
  }
});
