// The live page: which target is looked at, and what is asked for when.
import { follow, get, pause, Refused } from "./api.js";
import { Demo } from "./demo.js";
import { Plane } from "./mixture.js";
import { showColumns, showEvents, showNow, showProportions, showRecent, showTargets } from "./panels.js";
import { Series } from "./series.js";
import { explain, prepare } from "./why.js";
import { $ } from "./words.js";

const EVERY = 500; // milliseconds from one picture to the next, at least
const QUIET = 4000; // after so long without news figures of the moment are asked for again

const targets = new Map();
const now = { target: null, picture: null, news: 0 };
const why = (position) => explain(now.target, position);
const plane = new Plane(why), series = new Series(), demo = new Demo(() => now.picture && drawSeries());

const status = (state) => {
  $("status").dataset.state = state;
  $("status").textContent = { live: "live", lost: "connection lost, trying again", waiting: "connecting" }[state];
};

// ---- one target

const marks = () => {
  const drifts = (now.picture?.drifts ?? []).map((drift) => ({ ...drift, kind: "drift" }));
  return [...drifts, ...(demo.target === now.target ? demo.marks : [])].sort((a, b) => a.row - b.row);
};

const drawSeries = () => {
  series.update(now.picture, marks());
  showEvents(marks());
};

const drawNow = () => showNow(targets.get(now.target) ?? {}, now.picture);

// One request at a time; what comes meanwhile asks for one more.
const refresh = once(async () => {
  const name = now.target;
  if (name === null) return;
  const picture = await get(`/v1/targets/${encodeURIComponent(name)}/picture`).catch((error) => {
    if (error instanceof Refused) $("mixture-words").textContent = error.message;
    throw error;
  });
  if (name !== now.target) return;
  now.picture = picture;
  plane.update(picture);
  drawSeries();
  drawNow();
  showRecent(picture.recent, picture.classes, why, (position) => prepare(name, position));
  showProportions(picture.proportions, picture.classes);
  showColumns(picture.columns);
  document.body.dataset.rows = picture.rows_seen;
});

const choose = (name) => {
  Object.assign(now, { target: name, picture: null });
  $("title-target").textContent = name;
  document.title = `${name} · baryflow live`;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  plane.clear();
  drawNow();
  list();
  refresh();
};

// ---- all targets

const wanted = () => decodeURIComponent(location.hash.slice(1));

const list = () => {
  if (!targets.has(now.target)) {
    now.target = null;
    const [first] = targets.has(wanted()) ? [wanted()] : targets.keys();
    if (first !== undefined) return choose(first);
  }
  return showTargets([...targets.values()], now.target, choose);
};

const listSoon = once(async () => list());

const reload = once(async () => {
  const all = await get("/v1/targets");
  targets.clear();
  for (const one of all.targets) targets.set(one.name, one);
  now.news = Date.now();
  list();
  drawNow();
  refresh();
});

const hear = (_, { targets: some, gone, all }) => {
  now.news = Date.now();
  for (const one of some) targets.set(one.name, one);
  for (const name of gone) targets.delete(name);
  if (!all) reload();
  listSoon();
  if (some.some((one) => one.name === now.target)) {
    drawNow();
    refresh();
  }
};

function once(work) {
  let running = false, again = false;
  return async () => {
    again = true;
    if (running) return;
    running = true;
    while (again) {
      again = false;
      try { await work(); } catch { /* the stream of events says when the service is back */ }
      await pause(EVERY);
    }
    running = false;
  };
}

// A browser has few connections for one host: a page that nobody sees gives its own back.
let stop = null;
const listen = () => {
  stop?.abort();
  stop = null;
  if (document.hidden) return;
  stop = new AbortController();
  follow("/v1/live", { signal: stop.signal, event: hear, state: (state) => { status(state); if (state === "live") reload(); } });
};

document.addEventListener("visibilitychange", listen);
$("find").addEventListener("input", list);
addEventListener("hashchange", () => { if (wanted() !== now.target && targets.has(wanted())) choose(wanted()); });
setInterval(() => { if (!document.hidden && Date.now() - now.news > QUIET && targets.get(now.target)?.rows_per_second > 0.05) reload(); }, QUIET);
if (new URLSearchParams(location.search).has("demo")) setInterval(() => document.hidden || demo.look(), 1000);
listen();
