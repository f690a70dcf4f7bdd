// Alarms of a target: the list with its evidence, and the commands of operators.
import { describeError, post } from "./api.js";
import { $, element, formatCount, formatDuration, formatMoment, formatNumber, formatProbability, formatTime, grid, joinWithAnd, plural, say } from "./dom.js";

const NAME = "baryflow-operator"; // key of the operator's name in the storage of the tab
const DURATIONS = ["30 min", "2 h", "8 h", "24 h"], ROWS = ["10 rows", "50 rows", "200 rows"];
const STATES = {
  unacknowledged: "active, not acknowledged", acknowledged: "active, acknowledged", returned: "over, not acknowledged",
  reclassified: "reclassified: its rows are now diagnosed differently; not acknowledged",
  shelved: "shelved", suppressed: "suppressed: out of use", normal: "over" };
const WAITING = ["unacknowledged", "reclassified", "returned"];

const current = { target: null, timed: false, shown: "" };
let shelving = null;

// ---- commands

const command = async (action, alarm, more = {}) => {
  const { target } = current, by = sessionStorage.getItem(NAME) ?? "";
  try {
    const answer = await post(`/v1/targets/${encodeURIComponent(target)}/alarms/${action}`, { alarm: alarm.alarm, ...(alarm.number ? { number: alarm.number } : {}), ...(by ? { by } : {}), ...more });
    if (target === current.target) showAlarms(target, answer, current.timed);
    return "";
  } catch (error) {
    return describeError(error);
  }
};

const commandButton = (text, alarm, onClick) => {
  const button = element("button", { type: "button", className: "changes", textContent: text, ariaLabel: `${text} ${alarm.alarm}` });
  button.dataset.key = `${text} ${alarm.alarm}`;
  let busy = false; // not disabled meanwhile: it would lose the focus
  button.addEventListener("click", async () => {
    if (busy) return;
    busy = true;
    const error = await onClick();
    busy = false;
    if (error) say(error);
  });
  return button;
};

$("acknowledge-all").addEventListener("click", async () => {
  const error = await command("acknowledge", { alarm: "*" });
  if (error) say(error);
});

// ---- the dialog: shelve for how long

const openShelving = (alarm) => {
  shelving = alarm;
  $("shelve-title").textContent = `Shelve ${alarm.alarm}`;
  $("shelve-choices").replaceChildren(...(current.timed ? DURATIONS : ROWS).map((text) => {
    const button = element("button", { type: "button", className: "chip", textContent: text });
    button.addEventListener("click", () => { $("shelve-for").value = text; shelve(); });
    return button;
  }));
  $("shelve-for").value = $("shelve-comment").value = $("shelve-wrong").textContent = "";
  $("shelve-for").placeholder = current.timed ? "45 min" : "30 rows";
  $("shelve-by").value = sessionStorage.getItem(NAME) ?? "";
  $("shelve").showModal();
  $("shelve-choices").firstChild.focus();
};

const shelve = async () => {
  sessionStorage.setItem(NAME, $("shelve-by").value.trim());
  const comment = $("shelve-comment").value.trim();
  const text = $("shelve-for").value.trim().replace(/(\d)\s+(s|min|h|d)$/, "$1$2");
  const error = text ? await command("shelve", shelving, { for: text, ...(comment ? { comment } : {}) }) : "For how long?";
  $("shelve-wrong").textContent = error;
  if (error) return;
  say(`Shelved ${shelving.alarm} for ${$("shelve-for").value}.`);
  $("shelve").close();
};

$("shelve-form").addEventListener("submit", (event) => { event.preventDefault(); shelve(); });
$("shelve-close").addEventListener("click", () => $("shelve").close());
$("shelve").addEventListener("click", (event) => { if (event.target === $("shelve")) $("shelve").close(); });

// ---- the list

const describeState = (alarm) => {
  if (alarm.state !== "shelved") return STATES[alarm.state];
  const seconds = /^([\d.e+]+) s$/.exec(alarm.shelved_for ?? "");
  return `shelved for ${seconds ? formatDuration(Number(seconds[1])) : alarm.shelved_for} more`;
};

const describeHistory = (alarm) => {
  if (!alarm.number) return "It has not been raised.";
  const since = formatMoment(alarm.since, alarm.since_row), row = alarm.since ? ` (row ${formatCount(alarm.since_row)})` : "";
  const parts = [`alarm ${formatCount(alarm.number)}`, `${alarm.active ? "since" : "from"} ${since}${row}`];
  if (!alarm.active && alarm.cleared) parts.push(`until ${alarm.since ? formatTime(alarm.cleared) : `row ${alarm.cleared}`}`);
  if (alarm.probability) parts.push(`probability ${formatProbability(alarm.probability)}`);
  if (alarm.occurrences > 1) parts.push(`${plural(alarm.occurrences, "occurrence")}${alarm.chattering ? ", chattering" : ""}`);
  if (alarm.by) parts.push(`last command by ${alarm.by}`);
  if (alarm.comment) parts.push(`“${alarm.comment}”`);
  return `${parts.join(" · ")}`;
};

const describeEvidence = ({ cases = [], columns = [] }) => {
  const sentences = [];
  if (cases.length) sentences.push(`Most like ${cases[0].class} in ${cases[0].source}, ${formatNumber(cases[0].distance)} standard deviations away.`);
  if (columns.length) sentences.push(`Moved most: ${joinWithAnd(columns.slice(0, 2).map((one) => `${one.name} is ${formatNumber(one.value)} instead of ${formatNumber(one.rival)}`))}.`);
  return sentences.join(" ");
};

const showEvidence = (alarm, open) => {
  const { cases = [], columns = [], compared_with: normal } = alarm.evidence ?? {};
  if (!cases.length && !columns.length) return [];
  const parts = [element("p", { className: "note", textContent: describeEvidence(alarm.evidence) })];
  const tables = [];
  if (columns.length) tables.push(grid(["column", "now", "usual for this alarm", `in ${normal}`], columns.map((one) => [one.name, formatNumber(one.value), formatNumber(one.usual), formatNumber(one.rival)])));
  if (cases.length) tables.push(grid(["nearest labelled cases", "source", "standard deviations away"], cases.map((one) => [one.class, one.source ?? "–", formatNumber(one.distance)])));
  const details = element("details", { open: open.has(alarm.alarm) }, element("summary", { textContent: "Evidence", ariaLabel: `Evidence for ${alarm.alarm}` }), ...tables);
  details.dataset.alarm = alarm.alarm;
  return [...parts, details];
};

const showAlarm = (alarm, open) => {
  const buttons = [];
  if (WAITING.includes(alarm.state)) buttons.push(commandButton("Acknowledge", alarm, () => command("acknowledge", alarm)));
  if (alarm.state === "shelved") buttons.push(commandButton("Unshelve", alarm, () => command("unshelve", alarm)));
  else if (alarm.state !== "suppressed") buttons.push(commandButton("Shelve …", alarm, () => openShelving(alarm)));
  const suppression = alarm.state === "suppressed" ? "Unsuppress" : "Suppress";
  buttons.push(commandButton(suppression, alarm, () => command(suppression.toLowerCase(), alarm)));
  const item = element("li", { className: alarm.state }, element("div", { className: "alarm-head" },
    element("span", { className: `priority ${alarm.priority}`, textContent: alarm.priority }),
    element("b", { textContent: alarm.alarm }), element("span", { className: "state", textContent: describeState(alarm) })),
  element("p", { className: "note", textContent: describeHistory(alarm) }), ...showEvidence(alarm, open),
  element("div", { className: "buttons" }, ...buttons));
  item.dataset.alarm = alarm.alarm;
  return item;
};

// `answer`: what the service lists. `timed`: whether rows have times by which an alarm can be shelved.
export const showAlarms = (target, answer, timed) => {
  const text = JSON.stringify([target, answer]);
  Object.assign(current, { target, timed });
  if (text === current.shown) return;
  current.shown = text;
  const { enabled, alarms } = answer, over = alarms.filter((one) => one.state === "normal"), listed = alarms.filter((one) => one.state !== "normal");
  $("alarms").hidden = !enabled;
  $("alarms").classList.toggle("raised", listed.some((one) => one.state === "unacknowledged"));
  const active = listed.filter((one) => one.active && one.state !== "shelved" && one.state !== "suppressed").length, waiting = listed.filter((one) => WAITING.includes(one.state)).length;
  $("alarms-note").textContent = `${active ? `${plural(active, "alarm")} active` : "No alarm is active"}${waiting ? `, ${formatCount(waiting)} not acknowledged` : ""}.${answer.summary?.flood ? " Many alarms in a short time: they may have one cause." : ""}`;
  const open = new Set([...document.querySelectorAll("#alarms details[open][data-alarm]")].map((one) => one.dataset.alarm)), focused = document.activeElement?.dataset?.key, on = document.activeElement?.closest("#alarms li");
  $("alarm-list").replaceChildren(...listed.map((one) => showAlarm(one, open)));
  $("alarms-over").hidden = !over.length;
  $("alarms-over-title").textContent = plural(over.length, "earlier alarm");
  $("alarms-over-list").replaceChildren(...over.map((one) => showAlarm(one, open)));
  const lost = waiting < 2 && document.activeElement === $("acknowledge-all");
  $("acknowledge-all").hidden = waiting < 2;
  if (lost) $("alarms").focus();
  if (on) {
    const buttons = [...$("alarms").querySelectorAll("button")];
    (buttons.find((one) => one.dataset.key === focused) ?? buttons.find((one) => one.closest("li")?.dataset.alarm === on.dataset.alarm) ?? $("alarms")).focus();
  }
};
