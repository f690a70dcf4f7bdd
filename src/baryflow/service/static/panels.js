// Lists and bars: targets, figures of the moment, diagnoses, proportions, columns, events.
import { $, brief, chance, color, count, draw, key, list, make, number, percent } from "./words.js";

const NOVEL = 0.99, COLUMNS = 8;
const STILL = 6000; // milliseconds
const FEW = 12, LISTED = 60; // targets that need no search, and that are listed at a time

export const showTargets = (all, chosen, choose) => {
  $("targets-note").hidden = all.length > 0;
  $("find").hidden = all.length <= FEW;
  const looked = all.filter((one) => one.name.toLowerCase().includes($("find").value.toLowerCase())).sort((a, b) => (a.name < b.name ? -1 : 1));
  const targets = looked.slice(0, LISTED);
  $("targets-more").textContent = looked.length > LISTED ? `and ${count(looked.length - LISTED)} more` : "";
  const had = document.activeElement?.dataset?.target;
  $("targets").replaceChildren(...targets.map((one) => {
    const more = [`${count(one.rows_seen)} rows`, one.state];
    if (one.rows_per_second > 0.05) more.splice(1, 0, `${number(one.rows_per_second)}/s`);
    const button = make("button", { type: "button" }, make("b", { textContent: one.name }),
      make("span", { className: "more", textContent: more.join(" · ") }),
      make("span", { className: "more", textContent: one.nearest ? `most like ${one.nearest} · ${percent(one.reliability)} reliable` : "nothing learned yet" }));
    button.dataset.target = one.name;
    button.setAttribute("aria-current", String(one.name === chosen));
    button.addEventListener("click", () => choose(one.name));
    return make("li", {}, button);
  }));
  if (had !== undefined) [...$("targets").querySelectorAll("button")].find((node) => node.dataset.target === had)?.focus();
};

export const showNow = (summary, picture) => {
  const last = picture?.recent.at(-1), label = String(last?.label ?? summary.last_label ?? "nothing yet");
  $("now-label").textContent = $("now-label").title = label;
  $("now-label").classList.toggle("long", label.length > 26);
  $("now-label-more").textContent = last ? `${chance(last.probability)} probable, ${strangeness(last.novelty)}` : "";
  const shares = Object.entries(picture?.history.resemblance ?? {}).map(([name, values]) => [name, values.at(-1) ?? 0]);
  const alike = shares.sort((a, b) => b[1] - a[1]).filter(([, share]) => share > 0);
  $("now-nearest").textContent = summary.nearest ?? "–";
  $("now-nearest-more").textContent = alike.slice(0, 2).map(([name, share], i) => (i ? `${name} ${percent(share)}` : percent(share))).join("; ");
  $("now-reliability").textContent = summary.nearest ? percent(summary.reliability) : "–";
  $("now-meter").value = summary.reliability ?? 0;
  $("now-rows").textContent = count(summary.rows_seen);
  $("now-rate").textContent = summary.rows_per_second > 0.05 ? `${number(summary.rows_per_second)} in a second` : "";
  const drifts = Number(summary.drifts ?? 0);
  $("now-drifts").textContent = count(drifts);
  $("now-drifts-more").textContent = drifts ? "marked in the charts" : "nothing has changed";
};

// A time as it came; of one in full, only the hour of the day here.
const moment = (time) => (/^\d{4}-\d\d-\d\dT.*Z$/.test(time) ? new Date(time).toLocaleTimeString("en-GB") : String(time));

const strangeness = (novelty) => (novelty === null || novelty === undefined ? "novelty unknown" : novelty > NOVEL ? "novel" : `novelty ${percent(novelty)}`);

// Nobody can press what runs away: the list stands still for a while after a pointer or a key was on it.
let touched = 0;
for (const kind of ["pointermove", "pointerdown", "keydown", "focusin"]) $("recent").addEventListener(kind, () => { touched = Date.now(); });
$("recent").addEventListener("pointerleave", () => { touched = 0; });

export const showRecent = (recent, classes, why, prepare) => {
  const still = Date.now() - touched < STILL && $("recent").children.length > 0;
  $("recent-words").textContent = still ? "Standing still while you look." : "Newest first. Press one to see why.";
  if (still) return;
  const had = document.activeElement?.dataset?.position;
  $("recent-none").hidden = recent.length > 0;
  $("recent").replaceChildren(...[...recent].reverse().map((one) => {
    const label = String(one.label), code = classes.indexOf(label);
    const button = make("button", { type: "button", title: label }, code < 0 ? make("span") : key(code),
      make("span", { className: "name", textContent: label }), make("span", { className: "sure", textContent: chance(one.probability) }),
      make("span", { className: "more" }, make("span", { textContent: `row ${count(one.position)}${one.time ? `, ${moment(one.time)}` : ""}` }),
        make("span", { className: one.novelty > NOVEL ? "strange" : "", textContent: strangeness(one.novelty) })));
    button.dataset.position = one.position;
    button.addEventListener("click", () => why(one.position));
    // The service keeps the last rows only: what may be asked for is fetched before it is gone.
    for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => prepare(one.position));
    return make("li", {}, button);
  }));
  if (had !== undefined) ($("recent").querySelector(`[data-position="${Number(had)}"]`) ?? $("recent")).focus({ preventScroll: true });
};

const bar = (from, to, fill) => {
  const svg = draw("svg", { class: "length", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  svg.append(draw("rect", { x: Math.min(from, to), y: 0, width: Math.max(0.6, Math.abs(to - from)), height: 10, fill }));
  return svg;
};

export const showProportions = (proportions, classes) => {
  const all = Object.entries(proportions).sort((a, b) => b[1] - a[1]);
  const shown = all.filter(([, share]) => share >= 0.005).slice(0, 12), rest = all.length - shown.length;
  $("proportions").replaceChildren(...shown.map(([name, share]) => {
    const code = classes.indexOf(name);
    return make("div", { className: "bar" }, make("span", { className: "name", title: name }, key(code), make("span", { textContent: name })),
      bar(0, 100 * share / (shown[0][1] || 1), color(code)), make("span", { className: "n", textContent: percent(share, 1) }));
  }));
  const left = all.slice(shown.length).reduce((sum, [, share]) => sum + share, 0);
  $("proportions-words").textContent = all.length ? `As the target is estimated to hold them.${rest ? ` ${count(rest)} further ${rest === 1 ? "class" : "classes"}: ${percent(left, 1)} together.` : ""}` : "Not estimated yet.";
};

export const showColumns = (all) => {
  const columns = all.slice(0, COLUMNS);
  const most = Math.max(0.25, ...columns.map((one) => Math.abs(one.difference ?? 0)));
  $("columns").replaceChildren(...columns.map((one) => make("div", { className: "bar" },
    make("span", { className: "name", title: one.name }, make("span", { textContent: one.name })),
    bar(50, 50 + 50 * (one.difference ?? 0) / most, one.difference > 0 ? "var(--c5)" : "var(--c0)"),
    make("span", { className: "n", textContent: `${number(one.target)} vs ${number(one.sources)}` }))));
  $("columns-words").textContent = columns.length ? `Mean of the target and of the sources, in the units of rows. The bars are in standard deviations of the sources, higher to the right, lower to the left; the first is ${number(Math.abs(columns[0].difference ?? 0))} ${columns[0].difference > 0 ? "higher" : "lower"}.` : "Nothing to compare yet.";
};

export const showEvents = (events) => {
  // Who listens hears of what is new, and of nothing twice.
  const last = events.at(-1), told = last ? `${last.kind === "drift" ? "Drift: " : ""}${last.message ?? last.words}` : "";
  if ($("announced").textContent !== told) $("announced").textContent = told;
  $("events-none").hidden = events.length > 0;
  $("events").replaceChildren(...[...events].reverse().slice(0, 30).map((one) => make("li", { className: one.kind },
    make("small", { textContent: `row ${count(one.row)} · ${one.kind === "mark" ? "demo" : one.kind}` }), one.message ?? one.words)));
};
