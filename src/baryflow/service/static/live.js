// The live page: which target is looked at, and what is asked for when.
import { follow, get, pause, Refused } from "./api.js";
import { Demo } from "./demo.js";
import { Plane } from "./mixture.js";
import { showColumns, showEvents, showNow, showProportions, showRecent, showTargets } from "./panels.js";
import { Series } from "./series.js";
import { explain, prepare } from "./why.js";
import { $ } from "./words.js";

const EVERY = 500; // milliseconds from one picture to the next, at least

const now = { target: null, summary: {}, recent: [], picture: null, stop: null };
const why = (position) => explain(now.target, position);
const plane = new Plane(why), series = new Series(), demo = new Demo(() => now.picture && drawSeries());

const status = (state) => {
  $("status").dataset.state = state;
  $("status").textContent = { live: "live", lost: "connection lost, trying again", waiting: "connecting" }[state];
};

const marks = () => [...(now.picture?.drifts ?? []).map((drift) => ({ ...drift, kind: "drift" })), ...(demo.target === undefined || demo.target === now.target ? demo.marks : [])];

const drawSeries = () => {
  series.update(now.picture, marks());
  showEvents(marks().sort((a, b) => a.row - b.row));
};

// ---- one target

// One request at a time; what comes meanwhile asks for one more.
const refresh = once(async () => {
  const name = now.target;
  const picture = await get(`/v1/targets/${encodeURIComponent(name)}/picture`).catch((error) => {
    if (error instanceof Refused) $("mixture-words").textContent = error.message;
    throw error;
  });
  if (name !== now.target) return;
  now.picture = picture;
  now.recent = picture.recent;
  plane.update(picture);
  drawSeries();
  showRecent(now.recent, picture.classes, why, (position) => prepare(now.target, position));
  showProportions(picture.proportions, picture.classes);
  showColumns(picture.columns);
  showNow(now.summary, now.recent);
  document.body.dataset.rows = picture.rows_seen;
});

const choose = (name) => {
  now.stop?.abort();
  const stop = now.stop = new AbortController();
  Object.assign(now, { target: name, summary: {}, recent: [], picture: null });
  $("title-target").textContent = name;
  document.title = `${name} · baryflow live`;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  plane.clear();
  follow(`/v1/targets/${encodeURIComponent(name)}/live`, {
    signal: stop.signal,
    state: (state) => { status(state); if (state === "live") begin(); },
    event: (kind, data) => { if (kind === "batch" || data.summary) { now.summary = data.summary ?? now.summary; showNow(now.summary, now.recent); } refresh(); },
  });
  overview();
};

// After the connection is made, for the first time or again.
const begin = async () => {
  const name = now.target;
  try {
    const summary = await get(`/v1/targets/${encodeURIComponent(name)}`);
    if (name === now.target) showNow(now.summary = summary, now.recent);
  } catch (error) {
    if (!(error instanceof Refused)) return;
  }
  refresh();
  overview();
};

// ---- all targets

const overview = once(async () => {
  const { targets } = await get("/v1/targets");
  const wanted = decodeURIComponent(location.hash.slice(1));
  if (now.target === null && targets.length) choose((targets.find((one) => one.name === wanted) ?? targets[0]).name);
  showTargets(targets, now.target, choose);
});

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

addEventListener("hashchange", () => {
  const name = decodeURIComponent(location.hash.slice(1));
  if (name && name !== now.target) choose(name);
});

follow("/v1/live", { signal: new AbortController().signal, state: (state) => { status(state); if (state === "live") overview(); }, event: () => overview() });
if (new URLSearchParams(location.search).has("demo")) setInterval(() => demo.look(), 1000);
