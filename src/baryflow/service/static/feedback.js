// Labels from operators: confirm or correct a prediction, answer what the model asks, name novel rows.
import { describeError, get, post } from "./api.js";
import { $, describeNovelty, element, formatCount, formatProbability, formatTime, isNovel, legendKey, plural, say, svgElement } from "./dom.js";

const QUESTIONS = 5; // rows asked about at a time
const MAX_GROUP = 20; // rows that are named at a time
const MAX_BUTTONS = 6; // more classes than this are chosen in the dialog
const ICONS = { confirm: "M3 8.5l3.5 3.5L13 4.5", correct: "M3 13l1-3.5L10.5 3 13 5.5 6.5 12z" };

const current = { target: null, classes: [], novel: [], explain: null };

// ---- requests

const describeRows = (positions) => (positions.length === 1 ? `row ${formatCount(positions[0])}` : plural(positions.length, "row"));

// Send one label for some rows, which the operator has chosen: it counts for no certificate. Return an error or "".
const send = async (target, positions, name) => {
  try {
    const answer = await post(`/v1/targets/${encodeURIComponent(target)}/labels`, { labels: positions.map((position) => ({ position, label: name })), certify: false });
    const refused = answer.rejected.map((one) => one.reason);
    if (refused.length === positions.length) return refused[0];
    say(`Labelled ${describeRows(positions.slice(refused.length))} as ${name}.${answer.pending ? " The model learns this with its next batch of rows." : ""}${refused.length ? ` ${formatCount(refused.length)} refused: ${refused[0]}` : ""}`);
    return "";
  } catch (error) {
    return describeError(error);
  }
};

// ---- one prediction: confirm or correct

const icon = (kind) => {
  const svg = svgElement("svg", { viewBox: "0 0 16 16", "aria-hidden": "true", class: "icon" });
  svg.append(svgElement("path", { d: ICONS[kind] }));
  return svg;
};

const iconButton = (kind, description, onClick) => {
  const button = element("button", { type: "button", className: "changes", title: description, ariaLabel: description }, icon(kind));
  button.dataset.act = kind;
  button.addEventListener("click", onClick);
  return button;
};

export const labelButtons = (target, row, classes) => {
  const name = String(row.label), position = formatCount(row.position);
  const confirm = iconButton("confirm", `Confirm ${name} for row ${position}`, async () => {
    confirm.disabled = true;
    const error = await send(target, [row.position], name);
    confirm.disabled = false;
    if (error) say(error);
  });
  confirm.setAttribute("aria-pressed", String(String(row.given) === name));
  confirm.hidden = !classes.includes(name); // "unknown" is no class
  return [confirm, iconButton("correct", `Correct row ${position}`, () => label(target, [row]))];
};

// ---- the dialog: choose a class or type a new name, for one row or a group of them

let labelling = null;

// Resolve to the label that was given, or "" if none was.
export const label = (target, rows) => new Promise((resolve) => {
  labelling = { target, resolve, given: "" };
  const [row] = rows, group = rows.length > 1;
  $("label-title").textContent = group ? `What are these ${rows.length} rows?` : `What is row ${formatCount(row.position)}?`;
  $("label-note").textContent = group ? "All rows that are checked get the label." : `Predicted: ${row.label} (${formatProbability(row.probability)}), ${describeNovelty(row.novelty)}.`;
  $("label-rows").hidden = !group;
  $("label-rows").querySelector(".buttons").replaceChildren(...rows.map((one) => element("label", { className: "chip" },
    element("input", { type: "checkbox", checked: true, value: String(one.position) }), `row ${formatCount(one.position)}`)));
  $("label-classes").replaceChildren(...current.classes.map((name, code) => classButton(name, code, () => finish(name))));
  $("label-name").value = $("label-wrong").textContent = "";
  match();
  $("label").showModal();
  (group ? $("label-name") : $("label-classes").firstChild).focus();
});

const classButton = (name, code, onClick) => {
  const button = element("button", { type: "button", className: "chip", title: name }, legendKey(code), element("span", { textContent: name }));
  button.addEventListener("click", onClick);
  return button;
};

// Show the classes that contain the text, and offer it as a new class if it is none.
const match = () => {
  const text = $("label-name").value.trim(), lower = text.toLowerCase();
  for (const button of $("label-classes").children) button.hidden = !button.title.toLowerCase().includes(lower);
  const known = current.classes.find((name) => name.toLowerCase() === lower);
  $("label-new").hidden = !text;
  $("label-new").textContent = known === undefined ? `New class “${text}”` : `Label as ${known}`;
  return known ?? text;
};

const finish = async (name) => {
  const positions = [...$("label-rows").querySelectorAll("input:checked")].map((box) => Number(box.value));
  const error = positions.length ? await send(labelling.target, positions, name) : "Check at least one row.";
  $("label-wrong").textContent = error;
  if (error) return;
  labelling.given = name;
  $("label").close();
};

$("label-name").addEventListener("input", match);
$("label-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = match();
  if (name) finish(name);
});
$("label").addEventListener("close", () => labelling.resolve(labelling.given));
$("label-close").addEventListener("click", () => $("label").close());
$("label").addEventListener("click", (event) => { if (event.target === $("label")) $("label").close(); });

// ---- ask me

export const ask = async (n) => {
  const target = current.target;
  if (target === null) return;
  $("ask-me").disabled = true;
  try {
    const { rows } = await get(`/v1/targets/${encodeURIComponent(target)}/query?n=${n}`);
    if (target !== current.target) return;
    $("questions").replaceChildren(...rows.map((row) => showQuestion(target, row)));
    if (!rows.length) say("There is nothing to ask: every recent row has a label.");
    $("ask-me").textContent = "Ask again";
  } catch (error) {
    say(describeError(error));
  } finally {
    $("ask-me").disabled = false;
    $("questions").querySelector(".chip")?.focus();
  }
};

const showQuestion = (target, row) => {
  const names = current.classes.length > MAX_BUTTONS ? [String(row.label)] : current.classes;
  const more = `${row.time ? `${formatTime(row.time)}, ` : ""}predicted ${row.label} (${formatProbability(row.probability)}), ${describeNovelty(row.novelty)}`;
  const buttons = names.map((name) => classButton(name, current.classes.indexOf(name), async () => {
    const error = await send(target, [row.position], name);
    if (error) say(error);
    else answered(item, name);
  }));
  const other = element("button", { type: "button", className: "chip", textContent: "Other …", ariaLabel: `Other label for row ${formatCount(row.position)}` });
  other.addEventListener("click", async () => {
    const name = await label(target, [row]);
    if (name) answered(item, name);
  });
  const title = element("button", { type: "button", className: "link", textContent: `Row ${formatCount(row.position)}`, title: "Explain the prediction" });
  title.addEventListener("click", () => current.explain(target, row.position));
  const item = element("li", {}, title, element("span", { className: "note", textContent: more }),
    element("div", { className: "buttons", role: "group", ariaLabel: `Label of row ${formatCount(row.position)}` }, ...buttons, other));
  return item;
};

// The answer replaces the buttons, and the next question gets the focus.
const answered = (item, name) => {
  item.querySelector(".buttons").replaceWith(element("span", { className: "given", textContent: `labelled ${name}` }));
  ($("questions").querySelector(".chip") ?? $("ask-me")).focus();
};

$("ask-me").addEventListener("click", () => ask(QUESTIONS));
$("name-novel").addEventListener("click", () => label(current.target, current.novel));

// ---- the panel

export const showFeedback = (target, picture, { explain, nLabels }) => {
  if (target !== current.target) {
    $("questions").replaceChildren();
    $("ask-me").textContent = "Ask me";
  }
  const fresh = picture.new_classes, novel = picture.recent.filter((row) => isNovel(row) && row.given === undefined && !fresh.includes(String(row.now))).reverse();
  Object.assign(current, { target, explain, classes: picture.classes, novel: novel.slice(0, MAX_GROUP) });
  $("novel-note").textContent = novel.length ? `${formatCount(novel.length)} of the last ${formatCount(picture.recent.length)} rows ${novel.length === 1 ? "is" : "are"} unlike everything known. If you know what ${novel.length === 1 ? "it is" : "they are"}, name ${novel.length === 1 ? "it" : "them"}.` : "";
  $("novel").hidden = !novel.length;
  $("name-novel").textContent = novel.length > 1 ? `Name ${novel.length > MAX_GROUP ? "the last " : ""}${current.novel.length} rows …` : "Name it …";
  $("new").hidden = !fresh.length;
  $("new-classes").replaceChildren(...fresh.map((name) => element("li", {}, legendKey(picture.classes.indexOf(name)), element("span", { textContent: name }))));
  $("proven").hidden = !nLabels && !picture.certificate.labels;
  showProof(picture.certificate);
  const readOnly = document.body.classList.contains("read-only");
  $("feedback").hidden = readOnly && $("novel").hidden && $("new").hidden && $("proven").hidden;
};

const showProof = (certificate) => {
  $("proof").replaceChildren(...certificate.sentences.map((textContent) => element("li", { textContent })));
  $("proof-note").textContent = certificate.labels ? "Labels given on this page teach the model, but do not count here." : "Nothing yet: only labels of rows chosen at random count (sent with “certify”). Labels given on this page teach the model, but do not count here.";
};
