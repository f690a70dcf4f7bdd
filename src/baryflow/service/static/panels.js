// Everything but the plots and feedback: the list of targets, current values, predictions and their explanations, bars,
// events, and the panel of a demo.
import { describeError, get, post } from "./api.js";
import { $, color, describeNovelty, element, formatCount, formatDuration, formatMoment, formatNumber, formatPercent, formatProbability, formatTime, grid, isNovel, legendKey, plural, svgElement } from "./dom.js";
import { ask, label, labelButtons } from "./feedback.js";

const MAX_COLUMNS = 8, MAX_PROPORTIONS = 12, MAX_EVENTS = 30, MAX_EXPLANATIONS = 30;
const UNLIKE = 0.5; // share of novel rows of a batch from which on it is unlike all sources
const PAUSE = 6000; // milliseconds for which the predictions stand still after the pointer or a key was used
const SEARCHABLE = 12, MAX_LISTED = 60; // more targets than this get a search field; at most this many are listed

// ---- targets

const describeAlarms = (active, waiting, priority) =>
  [active ? `${plural(active, "alarm")} active` : "", waiting ? `${active ? formatCount(waiting) : plural(waiting, "alarm")} not acknowledged` : ""].filter(Boolean).join(", ") + ` (${priority})`;

export const showTargets = (all, selected, select) => {
  $("targets-note").hidden = all.length > 0;
  $("find").hidden = all.length <= SEARCHABLE;
  const found = all.filter((one) => one.name.toLowerCase().includes($("find").value.toLowerCase())).sort((a, b) => (a.name < b.name ? -1 : 1));
  $("targets-more").textContent = found.length > MAX_LISTED ? `and ${formatCount(found.length - MAX_LISTED)} more` : "";
  const focused = document.activeElement?.dataset?.target;
  $("targets").replaceChildren(...found.slice(0, MAX_LISTED).map((one) => {
    const more = [plural(one.rows_seen, "row"), one.state];
    if (one.rows_per_second > 0.05) more.splice(1, 0, `${formatNumber(one.rows_per_second)}/s`);
    const { active = 0, unacknowledged = 0, priority } = one.alarms ?? {}, data = dataState(one);
    const button = element("button", { type: "button" }, element("b", { textContent: one.name }),
      ...(active || unacknowledged ? [element("span", { className: "more bad", textContent: describeAlarms(active, unacknowledged, priority) })] : []),
      ...(data.late ? [element("span", { className: "more bad", textContent: data.text })] : []),
      element("span", { className: "more", textContent: more.join(" · ") }),
      element("span", { className: "more", textContent: one.nearest ? `most like ${one.nearest} · ${formatPercent(one.reliability)} reliable` : "nothing learned yet" }));
    button.dataset.target = one.name;
    button.setAttribute("aria-current", String(one.name === selected));
    button.addEventListener("click", () => select(one.name));
    return element("li", {}, button);
  }));
  if (focused !== undefined) [...$("targets").querySelectorAll("button")].find((node) => node.dataset.target === focused)?.focus();
};

// ---- current values

const LATE = 30, LATE_FACTOR = 4; // seconds, and times the longest interval lately, after which rows are late

// Whether rows arrive, which is not the same as whether the page is connected. `received`: when this was known.
export const dataState = ({ seconds_since_rows: since, seconds_between_rows: between, received, rows_seen: n }) => {
  if (n === undefined) return { text: "", late: false };
  if (since === null || since === undefined) return { text: "no rows since the service started", late: true };
  const age = since + (Date.now() - (received ?? Date.now())) / 1000;
  const late = age > Math.max(LATE, LATE_FACTOR * (between ?? 0));
  return { text: late ? `no rows for ${formatDuration(age)}` : `last row ${age < 2 ? "just now" : `${formatDuration(age)} ago`}`, late };
};

export const showDataState = (summary, connected) => {
  const { text, late } = dataState(summary);
  $("data").hidden = !text;
  $("data").textContent = connected || !text ? text : `${text}, as far as known`;
  $("data").dataset.state = late ? "late" : connected ? "live" : "waiting";
};

let taught = 0; // labels and rows of baselines: they change the predictions of earlier rows

export const showNow = (summary, picture) => {
  const known = (picture?.baselines ?? []).reduce((sum, one) => sum + one.rows, summary.n_labels ?? 0);
  if (known !== taught) explanations.clear();
  taught = known;
  const last = picture?.recent.at(-1), found = last && diagnosisOf(last), label = found?.label ?? String(summary.last_label ?? "none yet");
  const band = last && label === String(last.label) ? picture.bands.at(-1) : undefined;
  $("now-label").textContent = label;
  $("now-label").classList.toggle("long", label.length > 26);
  $("now-label-more").textContent = found ? `${band && band.rows > 1 ? `for ${plural(band.rows, "row")}, since ${formatMoment(band.since, band.first)}; ` : ""}${found.given ? "labelled by an operator" : `probability ${formatProbability(found.probability)}`}` : "";
  const shares = Object.entries(picture?.history.resemblance ?? {}).map(([name, values]) => [name, values.at(-1) ?? 0]);
  const alike = shares.sort((a, b) => b[1] - a[1]).filter(([, share]) => share > 0);
  const learned = Boolean(summary.nearest);
  $("now-nearest").textContent = alike[0]?.[0] ?? summary.nearest ?? "–"; // as in the chart
  $("now-nearest-more").textContent = alike.slice(0, 2).map(([name, share], i) => (i ? `${name} ${formatPercent(share)}` : formatPercent(share))).join("; ");
  for (const id of ["nearest", "reliability", "coverage"]) $(`now-${id}`).parentElement.hidden = !learned;
  $("now-reliability").textContent = formatPercent(summary.reliability);
  $("now-meter").value = summary.reliability ?? 0;
  $("now-coverage").textContent = formatPercent(picture?.history.coverage.at(-1) ?? summary.coverage);
  showNovelty(picture?.recent ?? []);
  const fresh = summary.new_classes?.length ?? 0, drifts = Number(summary.drifts ?? 0);
  $("now-labels").textContent = formatCount(summary.n_labels);
  $("now-labels-more").textContent = fresh ? plural(fresh, "new class", "new classes") : "given by operators";
  $("now-labels").parentElement.hidden = !summary.n_labels;
  $("now-rows").textContent = formatCount(summary.rows_seen);
  $("now-rate").textContent = summary.rows_per_second > 0.05 ? `${formatNumber(summary.rows_per_second)} per second` : "";
  $("now-drifts").textContent = formatCount(drifts);
  $("now-drifts").parentElement.hidden = !drifts;
};

// What a row is taken for now, as the list shows it: its label, or what is predicted since labels were learned.
export const diagnosisOf = (one) => {
  if (one.given !== undefined) return { label: String(one.given), given: true };
  if (taught && one.now !== undefined) return { label: String(one.now), probability: one.now_probability };
  return { label: String(one.label), probability: one.probability };
};

const showNovelty = (recent) => {
  const novel = recent.filter(isNovel).length, n = recent.length;
  $("now-novelty").parentElement.hidden = !n;
  $("now-novelty").textContent = novel ? `${formatCount(novel)} of ${formatCount(n)}` : "none";
  $("now-novelty").classList.toggle("novel", novel > 0);
  $("now-novelty-more").textContent = novel ? `of the last ${plural(n, "row")} ${novel === 1 ? "is" : "are"} unlike everything known` : `the last ${n === 1 ? "row is" : `${formatCount(n)} rows are`} like known rows`;
};

// ---- predictions

// A moving list cannot be clicked: it pauses while the pointer or the keyboard is on it.
let touched = 0;
for (const type of ["pointermove", "pointerdown", "keydown", "focusin"]) $("recent").addEventListener(type, () => { touched = Date.now(); });
$("recent").addEventListener("pointerleave", () => { touched = 0; });

const opened = new Set(); // bands of which all rows are shown

export const showRecent = (target, recent, classes) => {
  if (document.querySelector("dialog[open]")) return; // the focus returns to the list: it is updated then
  const paused = Date.now() - touched < PAUSE && $("recent").children.length > 0;
  $("recent-note").textContent = recent.length ? (paused ? "Paused while you look." : "Newest first; equal ones in a row are one entry. Select one for an explanation.") : "The first row is awaited.";
  const focused = document.activeElement?.closest("#recent [data-position]"), act = document.activeElement?.dataset.act;
  if (paused) {
    // Labels and what they change are shown at once.
    const known = new Map(recent.map((one) => [String(one.position), one]));
    for (const item of $("recent").querySelectorAll("[data-position]")) {
      const one = known.get(item.dataset.position);
      if (one && item.dataset.learned !== learned(one)) item.replaceWith(showPrediction(target, one, classes, item.dataset.part));
    }
  } else $("recent").replaceChildren(...bandsOf(recent).map((rows) => showBand(target, rows, classes)));
  if (focused) ($("recent").querySelector(`[data-position="${focused.dataset.position}"] [data-act=${act}]`) ?? $("recent")).focus({ preventScroll: true });
};

// Rows with the same label one after the other, newest first.
const bandsOf = (recent) => {
  const bands = [];
  for (const one of [...recent].reverse()) {
    if (bands.length && String(bands.at(-1)[0].label) === String(one.label)) bands.at(-1).push(one);
    else bands.push([one]);
  }
  return bands;
};

// The newest row of a band, and the others if they are wanted.
const showBand = (target, [newest, ...others], classes) => {
  const item = element("li", {}, showPrediction(target, newest, classes, "newest"));
  if (!others.length) return item;
  const key = `${target} ${others.at(-1).position}`, list = element("div", { hidden: !opened.has(key) });
  const button = element("button", { type: "button", className: "all", textContent: `${plural(others.length, "more row")} since ${formatMoment(others.at(-1).time, others.at(-1).position)}` });
  button.setAttribute("aria-expanded", String(opened.has(key)));
  const fill = () => list.replaceChildren(...others.map((one) => showPrediction(target, one, classes, "other")));
  if (opened.has(key)) fill();
  button.addEventListener("click", () => {
    list.hidden = !list.hidden;
    button.setAttribute("aria-expanded", String(!list.hidden));
    if (list.hidden) opened.delete(key);
    else {
      opened.add(key);
      fill();
    }
  });
  item.append(button, list);
  return item;
};

const learned = (one) => JSON.stringify([one.given, one.now, taught > 0]);

// `part`: the newest row of a band has the name of its class, the other rows do not repeat it.
const showPrediction = (target, one, classes, part) => {
  const name = String(one.label), code = classes.indexOf(name), row = `row ${formatCount(one.position)}${one.time ? `, ${formatTime(one.time)}` : ""}`;
  const button = element("button", { type: "button", className: "row", title: "Explain the prediction" }, code < 0 || part === "other" ? element("span") : legendKey(code),
    element("span", { className: "name", textContent: part === "other" ? row : name }), element("span", { className: "probability", textContent: formatProbability(one.probability) }));
  const more = [...(part === "other" ? [] : [element("span", { textContent: row })]), ...(isNovel(one) ? [element("span", { className: "novel", textContent: describeNovelty(one.novelty) })] : [])];
  if (more.length) button.append(element("span", { className: "more" }, ...more));
  const changes = [];
  if (one.given !== undefined) changes.push(String(one.given) === name ? "confirmed" : `labelled ${one.given}`);
  if (taught && String(one.now) !== name) changes.push(`now predicted ${one.now} (${formatProbability(one.now_probability)})`);
  if (changes.length) button.append(element("span", { className: "given", textContent: changes.join(", ") }));
  button.dataset.act = "explain";
  button.addEventListener("click", () => explain(target, one.position));
  // The service keeps the last rows only: fetch the explanation before the row is dropped.
  for (const type of ["pointerenter", "focus"]) button.addEventListener(type, () => fetchExplanation(target, one.position));
  const item = element("div", { className: "prediction" }, button, ...labelButtons(target, one, classes));
  Object.assign(item.dataset, { position: one.position, learned: learned(one), part });
  return item;
};

// ---- explanation of a prediction

const explanations = new Map();

const fetchExplanation = (target, position) => {
  const path = `/v1/targets/${encodeURIComponent(target)}/why/${position}`;
  if (!explanations.has(path)) {
    const explanation = get(path);
    explanation.catch(() => explanations.delete(path));
    explanations.set(path, explanation);
    if (explanations.size > MAX_EXPLANATIONS) explanations.delete(explanations.keys().next().value);
  }
  return explanations.get(path);
};

export const explain = async (target, position) => {
  const dialog = $("why"), body = $("why-body");
  $("why-title").textContent = `Row ${formatCount(position)}`;
  body.replaceChildren(element("p", { textContent: "Loading …" }));
  if (!dialog.open) dialog.showModal();
  try {
    const explanation = await fetchExplanation(target, position);
    $("why-title").textContent = `Why ${explanation.label}?`;
    const correct = element("button", { type: "button", className: "changes", textContent: "Label this row …" });
    correct.addEventListener("click", () => { dialog.close(); label(target, [explanation]); });
    body.replaceChildren(...renderExplanation(explanation, position), correct);
  } catch (error) {
    body.replaceChildren(element("p", { textContent: describeError(error) }));
  }
};

const section = (title, note, body) => [
  element("h3", { textContent: title }),
  ...(note ? [element("p", { className: "note", textContent: note })] : []),
  element("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: title }, body)];

const renderExplanation = (one, position) => {
  const nearest = one.components[0];
  const farther = Math.round(100 * (1 - (one.novelty ?? 0)));
  const novel = one.novelty === null ? "" : isNovel(one) ? " The row is unlike everything known: fewer than 1 in 100 known rows are as far from the known classes. So the prediction is unreliable." : ` The row is like known rows: ${farther} in 100 of them are farther from the known classes.`;
  const prediction = `Row ${formatCount(position)} was predicted as “${one.label}” with probability ${formatProbability(one.probability)}.${novel}`;
  const near = nearest ? ` The nearest component is “${nearest.class}” ${nearest.source ? `of ${nearest.source}` : "of the target itself"}, ${formatNumber(nearest.distance)} standard deviations away.` : "";
  const parts = [element("p", { textContent: prediction + near }),
    ...section("Probabilities now", "According to the model in its present state.", grid(["class", "probability"], one.probabilities.map((row) => [row.class, formatProbability(row.probability)]))),
    ...section("Nearest components", "", grid(["class", "domain", "standard deviations away"], one.components.map((row) => [row.class, row.source ?? "the target itself", formatNumber(row.distance)])))];
  if (one.columns.length) {
    parts.push(...section("Columns for and against the prediction", `The values of this row, and the means of the predicted class and of “${one.rival}”, the likeliest other class.`, grid(
      ["column", "row", "predicted", "other", "evidence"],
      one.columns.map((row) => [row.name, formatNumber(row.value), formatNumber(row.usual), formatNumber(row.rival),
        element("span", { className: row.speaks, textContent: `${row.speaks} ${formatPercent(Math.abs(row.share ?? 0))}` })]))));
  }
  return parts;
};

$("why-close").addEventListener("click", () => $("why").close());
$("why").addEventListener("click", (event) => { if (event.target === $("why")) $("why").close(); });

// ---- bars

const bar = (from, to, fill) => {
  const svg = svgElement("svg", { class: "length", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(svgElement("rect", { x: Math.min(from, to), y: 0, width: Math.max(0.6, Math.abs(to - from)), height: 10, fill }));
  return svg;
};

// ---- explanations that compete, and what settles it

// Of more explanations than LISTED only the likeliest are listed, and how many there are besides.
const LISTED = 4;

// A number stays on the line of its column.
const keepTogether = (text) => text.replace(/ (?=[+×-][\d.])/g, "\u00a0");

export const showUnsettled = ({ competing, ambiguity, bands, novel }, reliability) => {
  const unlike = novel >= UNLIKE ? `${formatPercent(novel)} of the last batch is unlike all sources. Such predictions count as wrong, so the reliability is ${formatPercent(reliability)}. ` : "";
  $("unsettled").hidden = !competing.length && !unlike;
  $("unsettled-note").textContent = unlike + (competing.length ? `${plural(competing.length, "explanation")} of this target fit, and ${formatPercent(ambiguity)} of the predictions depend on which is right.` : "");
  const listed = competing.length > LISTED ? competing.slice(0, LISTED - 1) : competing, others = competing.length - listed.length;
  $("competing").replaceChildren(...[...listed, ...(others ? [`${formatCount(others)} others, less likely`] : [])].map((text) => element("li", { textContent: keepTogether(text) })));
  $("settle-baseline").hidden = !bands.length;
};

$("settle-labels").addEventListener("click", () => { $("asking").scrollIntoView(); ask(3); });
$("settle-baseline").addEventListener("click", () => { $("timeline").scrollIntoView(); $("baseline-first").focus(); });

// The caption says what explains the target; if several explanations fit, they are listed in a panel of their own.
export const showProportions = ({ proportions, classes, explanations, competing }) => {
  const all = Object.entries(proportions).filter(([, share]) => share !== null).sort((a, b) => b[1] - a[1]);
  const shown = all.filter(([, share]) => share >= 0.005).slice(0, MAX_PROPORTIONS), n = all.length - shown.length;
  $("proportions").replaceChildren(...shown.map(([name, share]) => {
    const code = classes.indexOf(name);
    return element("div", { className: "bar" }, element("span", { className: "name" }, legendKey(code), element("span", { textContent: name })),
      bar(0, 100 * share / (shown[0][1] || 1), color(code)), element("span", { className: "n", textContent: formatPercent(share, 1) }));
  }));
  const rest = all.slice(shown.length).reduce((sum, [, share]) => sum + share, 0);
  $("proportions-caption").textContent =
    `${competing.length ? "The mean over the explanations under “What is not known”." : explanations ?? ""}${n ? ` ${plural(n, "further class", "further classes")}: ${formatPercent(rest, 1)} in total.` : ""}`;
};

export const showColumns = (all) => {
  const columns = all.slice(0, MAX_COLUMNS);
  const largest = Math.max(0.25, ...columns.map((one) => Math.abs(one.difference ?? 0)));
  $("columns").replaceChildren(...columns.map((one) => element("div", { className: "bar" },
    element("span", { className: "name" }, element("span", { textContent: one.name })),
    bar(50, 50 + 50 * (one.difference ?? 0) / largest, one.difference > 0 ? "var(--high)" : "var(--low)"),
    element("span", { className: "n", textContent: `${formatNumber(one.target)} vs ${formatNumber(one.sources)}` }))));
  $("columns-panel").hidden = !columns.length;
  $("columns-caption").textContent = columns.length ? `Means of the target and of the sources, in the units of the rows. Bars: the difference in standard deviations of the sources, higher to the right, lower to the left. The first column is ${formatNumber(Math.abs(columns[0].difference ?? 0))} ${columns[0].difference > 0 ? "higher" : "lower"}.` : "";
};

// ---- events

const KINDS = { mark: "demo", drift: "drift", alarm: "alarm" };

export const showEvents = (events) => {
  const text = (event) => event.message ?? event.words;
  // For screen readers: announce a new event once.
  const last = events.at(-1), announcement = last ? `${last.kind === "drift" ? "Drift: " : ""}${text(last)}` : "";
  if ($("announced").textContent !== announcement) $("announced").textContent = announcement;
  $("events-panel").hidden = !events.length;
  $("events").replaceChildren(...[...events].reverse().slice(0, MAX_EVENTS).map((one) => element("li", { className: one.kind },
    element("small", { textContent: `row ${formatCount(one.row)} · ${KINDS[one.kind]}` }), text(one))));
};

// ---- the panel of a demo: how accurate the model is, and the controls of the simulated plant

export class Demo {
  constructor(onMarks) {
    this.onMarks = onMarks;
    this.marks = [];
  }

  async update() {
    const content = await get("/v1/demo").catch(() => null);
    if (!content) return;
    $("demo").hidden = false;
    this.target = content.target;
    $("demo-title").textContent = content.title;
    $("demo-description").textContent = content.words;
    $("demo-figures").replaceChildren(...content.figures.map((one) => element("div", {}, element("b", { textContent: one.value }), element("span", { textContent: one.name }))));
    if (content.plant) this.showPlant(content.plant);
    if (content.marks.length !== this.marks.length) {
      this.marks = content.marks.map((mark) => ({ ...mark, kind: "mark" }));
      this.onMarks();
    }
  }

  showPlant(plant) {
    if ($("plant").hidden) this.buildPlant(plant);
    markPressed("plant-modes", plant.mode);
    $("plant-end").disabled = !plant.fault;
    $("plant-said").textContent = plant.said;
    if (document.activeElement !== $("plant-speed")) $("plant-speed").value = plant.speed;
    $("plant-speed-value").textContent = `${$("plant-speed").value} h`;
  }

  buildPlant(plant) {
    $("plant").hidden = false;
    addButtons("plant-modes", plant.modes.map((mode) => [mode, String(mode), `operating mode ${mode}`]), (mode) => this.command("mode", { mode }));
    $("plant-fault").replaceChildren(...plant.faults.slice(1).map((name, i) => element("option", { value: String(i + 1), textContent: `${i + 1}: ${name}` })));
    $("plant-inject").addEventListener("click", () => this.command("fault", { fault: Number($("plant-fault").value) }));
    $("plant-end").addEventListener("click", () => this.command("fault", { fault: 0 }));
    $("plant-speed").addEventListener("change", () => this.command("speed", { speed: Number($("plant-speed").value) }));
    $("plant-speed").addEventListener("input", () => { $("plant-speed-value").textContent = `${$("plant-speed").value} h`; });
  }

  async command(name, body) {
    try {
      this.showPlant(await post(`/v1/plant/${name}`, body));
    } catch (error) {
      $("plant-said").textContent = describeError(error);
    }
    this.update();
  }
}

const addButtons = (id, all, onClick) => {
  $(id).querySelector(".buttons").replaceChildren(...all.map(([value, text, description]) => {
    const button = element("button", { type: "button", textContent: text, title: description });
    button.setAttribute("aria-label", description);
    button.dataset.value = value;
    button.addEventListener("click", () => onClick(value));
    return button;
  }));
};

const markPressed = (id, value) => {
  for (const button of $(id).querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.value === String(value)));
};
