// The live page: selects a target, and decides when to request what.
import { get, RequestError, sleep, subscribe } from "./api.js";
import { showAlarms } from "./alarms.js";
import { Charts } from "./charts.js";
import { $, setNeutral } from "./dom.js";
import { showFeedback } from "./feedback.js";
import { MixturePlot } from "./mixture.js";
import { Demo, explain, showColumns, showDataState, showEvents, showNow, showProportions, showRecent, showTargets, showUnsettled } from "./panels.js";
import { showTimeline } from "./timeline.js";

const INTERVAL = 500; // milliseconds between two pictures, at least
const TIMED = /^(\d+(\.\d+)?|\d{4}-\d\d-\d\d.*)$/; // times by which an alarm can be shelved
const IDLE = 4000; // milliseconds without an update after which the list is requested again

const targets = new Map();
const current = { target: null, picture: null, alarms: null, updated: 0, connected: false };
const plot = new MixturePlot((position) => explain(current.target, position));
const charts = new Charts(), demo = new Demo(() => current.picture && drawCharts());

const showStatus = (state) => {
  current.connected = state === "live";
  $("status").dataset.state = state;
  $("status").textContent = { live: "connected", lost: "connection lost, reconnecting", waiting: "connecting" }[state];
  showData();
};

const showData = () => showDataState(targets.get(current.target) ?? {}, current.connected);

// ---- one target

const marks = () => {
  const drifts = (current.picture?.drifts ?? []).map((drift) => ({ ...drift, kind: "drift" }));
  const changes = (current.picture?.changes ?? []).map((change) => ({ ...change, kind: "alarm" }));
  return [...drifts, ...changes, ...(demo.target === current.target ? demo.marks : [])].sort((a, b) => a.row - b.row);
};

const drawCharts = () => {
  const all = marks();
  charts.update(current.picture, all.filter((mark) => mark.kind !== "alarm"));
  showTimeline(current.target, current.picture, current.alarms.alarms, all);
  showEvents(all);
};

const drawNow = () => {
  const summary = targets.get(current.target) ?? {}, waiting = summary.alarms?.unacknowledged;
  showNow(summary, current.picture);
  showData();
  document.title = `${waiting ? `(${waiting}) ` : ""}${current.target ?? ""} · baryflow live`;
};

const refresh = throttled(async () => {
  const name = current.target;
  if (name === null) return;
  const path = `/v1/targets/${encodeURIComponent(name)}`;
  const [picture, alarms] = await Promise.all([get(`${path}/view`), get(`${path}/alarms`)]).catch((error) => {
    if (error instanceof RequestError) $("mixture-caption").textContent = error.message;
    throw error;
  });
  if (name !== current.target) return;
  Object.assign(current, { picture, alarms });
  setNeutral(picture.normal.map((one) => picture.classes.indexOf(one)));
  plot.update(picture);
  drawNow();
  drawCharts();
  showAlarms(name, alarms, TIMED.test(picture.recent.at(-1)?.time ?? ""));
  showRecent(name, picture.recent, picture.classes);
  showFeedback(name, picture, { explain, nLabels: targets.get(name)?.n_labels });
  showProportions(picture);
  showUnsettled(picture, targets.get(name)?.reliability);
  showColumns(picture.columns);
  document.body.dataset.rows = picture.rows_seen;
});

const select = (name) => {
  Object.assign(current, { target: name, picture: null, alarms: null });
  $("title-target").textContent = name;
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

const remember = (found) => { for (const one of found) targets.set(one.name, { ...one, received: Date.now() }); };

const listSoon = throttled(async () => list());

const reload = throttled(async () => {
  const all = await get("/v1/targets");
  document.body.classList.toggle("read-only", all.read_only);
  targets.clear();
  remember(all.targets);
  current.updated = Date.now();
  list();
  drawNow();
  refresh();
});

const onEvent = (_, { targets: changed, gone, all }) => {
  current.updated = Date.now();
  remember(changed);
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
setInterval(showData, 1000);
if (new URLSearchParams(location.search).has("demo")) setInterval(() => document.hidden || demo.update(), 1000);
connect();
