// The live page: selects a target, and decides when to request what.
import { get, RequestError, sleep, subscribe } from "./api.js";
import { Charts } from "./charts.js";
import { $ } from "./dom.js";
import { showFeedback } from "./feedback.js";
import { MixturePlot } from "./mixture.js";
import { Demo, explain, showColumns, showEvents, showNow, showProportions, showRecent, showTargets } from "./panels.js";

const INTERVAL = 500; // milliseconds between two pictures, at least
const IDLE = 4000; // milliseconds without an update after which the list is requested again

const targets = new Map();
const current = { target: null, picture: null, updated: 0 };
const plot = new MixturePlot((position) => explain(current.target, position));
const charts = new Charts(), demo = new Demo(() => current.picture && drawCharts());

const showStatus = (state) => {
  $("status").dataset.state = state;
  $("status").textContent = { live: "live", lost: "connection lost, reconnecting", waiting: "connecting" }[state];
};

// ---- one target

const marks = () => {
  const drifts = (current.picture?.drifts ?? []).map((drift) => ({ ...drift, kind: "drift" }));
  return [...drifts, ...(demo.target === current.target ? demo.marks : [])].sort((a, b) => a.row - b.row);
};

const drawCharts = () => {
  charts.update(current.picture, marks());
  showEvents(marks());
};

const drawNow = () => showNow(targets.get(current.target) ?? {}, current.picture);

const refresh = throttled(async () => {
  const name = current.target;
  if (name === null) return;
  const picture = await get(`/v1/targets/${encodeURIComponent(name)}/picture`).catch((error) => {
    if (error instanceof RequestError) $("mixture-caption").textContent = error.message;
    throw error;
  });
  if (name !== current.target) return;
  current.picture = picture;
  plot.update(picture);
  drawCharts();
  drawNow();
  showRecent(name, picture.recent, picture.classes);
  showFeedback(name, picture, explain);
  showProportions(picture.proportions, picture.classes);
  showColumns(picture.columns);
  document.body.dataset.rows = picture.rows_seen;
});

const select = (name) => {
  Object.assign(current, { target: name, picture: null });
  $("title-target").textContent = name;
  document.title = `${name} · baryflow live`;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  plot.clear();
  drawNow();
  list();
  refresh();
};

// ---- all targets

const nameInUrl = () => decodeURIComponent(location.hash.slice(1));

const list = () => {
  if (!targets.has(current.target)) {
    current.target = null;
    const [first] = targets.has(nameInUrl()) ? [nameInUrl()] : targets.keys();
    if (first !== undefined) return select(first);
  }
  return showTargets([...targets.values()], current.target, select);
};

const listSoon = throttled(async () => list());

const reload = throttled(async () => {
  const all = await get("/v1/targets");
  document.body.classList.toggle("read-only", all.read_only);
  targets.clear();
  for (const one of all.targets) targets.set(one.name, one);
  current.updated = Date.now();
  list();
  drawNow();
  refresh();
});

const onEvent = (_, { targets: changed, gone, all }) => {
  current.updated = Date.now();
  for (const one of changed) targets.set(one.name, one);
  for (const name of gone) targets.delete(name);
  if (!all) reload();
  listSoon();
  if (changed.some((one) => one.name === current.target)) {
    drawNow();
    refresh();
  }
};

// Run one call at a time, at most one per INTERVAL; calls meanwhile are combined into one more.
function throttled(work) {
  let running = false, again = false;
  return async () => {
    again = true;
    if (running) return;
    running = true;
    while (again) {
      again = false;
      try { await work(); } catch { /* the event stream reports when the service is back */ }
      await sleep(INTERVAL);
    }
    running = false;
  };
}

// A browser allows few connections per host: a hidden page closes its own.
let connection = null;
const connect = () => {
  connection?.abort();
  connection = null;
  if (document.hidden) return;
  connection = new AbortController();
  const onState = (state) => {
    showStatus(state);
    if (state === "live") reload();
  };
  subscribe("/v1/live", { signal: connection.signal, onEvent, onState });
};

document.addEventListener("visibilitychange", connect);
$("find").addEventListener("input", list);
for (const dialog of document.querySelectorAll("dialog")) dialog.addEventListener("close", refresh);
addEventListener("hashchange", () => { if (nameInUrl() !== current.target && targets.has(nameInUrl())) select(nameInUrl()); });
setInterval(() => { if (!document.hidden && Date.now() - current.updated > IDLE && targets.get(current.target)?.rows_per_second > 0.05) reload(); }, IDLE);
if (new URLSearchParams(location.search).has("demo")) setInterval(() => document.hidden || demo.update(), 1000);
connect();
