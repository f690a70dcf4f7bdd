// A click on a diagnosis says why.
import { get, Refused } from "./api.js";
import { $, chance, count, make, number, percent } from "./words.js";

const section = (title, note, body) => [make("h3", { textContent: title }), ...(note ? [make("p", { className: "note", textContent: note })] : []), make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: title }, body)];

// Roles are spelled out: where the style stacks the cells of a narrow table, browsers forget that it is one.
const grid = (head, rows) => make("table", { role: "table", className: head.length > 2 ? "many" : "" },
  make("thead", { role: "rowgroup" }, make("tr", { role: "row" },
    ...head.map((name, i) => make("th", { role: "columnheader", scope: "col", textContent: name, className: i ? "n" : "" })))),
  make("tbody", { role: "rowgroup" }, ...rows.map(([first, ...rest]) => make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row", textContent: first }),
    ...rest.map((cell) => make("td", { role: "cell", className: "n" }, cell))))));

const prepared = new Map();

// Ask now, for later; what was asked for lately is kept.
export const prepare = (target, position) => {
  const path = `/v1/targets/${encodeURIComponent(target)}/why/${position}`;
  if (!prepared.has(path)) {
    const answer = get(path);
    answer.catch(() => prepared.delete(path));
    prepared.set(path, answer);
    if (prepared.size > 30) prepared.delete(prepared.keys().next().value);
  }
  return prepared.get(path);
};

export const explain = async (target, position) => {
  const dialog = $("why"), body = $("why-body");
  $("why-title").textContent = `Why? Row ${count(position)}`;
  body.replaceChildren(make("p", { textContent: "asking …" }));
  if (!dialog.open) dialog.showModal();
  try {
    const said = await prepare(target, position);
    $("why-title").textContent = `Why ${said.label}?`;
    body.replaceChildren(...tell(said, position));
  } catch (error) {
    body.replaceChildren(make("p", { textContent: error instanceof Refused ? error.message : "The service cannot be reached at the moment." }));
  }
};

const tell = (said, position) => {
  const first = said.components[0];
  const novel = said.novelty > 0.99 ? " It is unlike anything known: take it with care." : "";
  const opening = `Row ${count(position)} was called “${said.label}” with a probability of ${chance(said.probability)}; ${percent(said.novelty)} of known rows are nearer to what is known.${novel}`;
  const near = first ? ` The nearest component is “${first.class}” ${first.source ? `of ${first.source}` : "of the target itself"}, ${number(first.distance)} standard deviations away.` : "";
  const parts = [make("p", { textContent: opening + near }),
    ...section("Probabilities now", "By the model as it is at this moment.", grid(["class", "probability"], said.probabilities.map((one) => [one.class, chance(one.probability)]))),
    ...section("Nearest components", "", grid(["class", "whose", "standard deviations away"], said.components.map((one) => [one.class, one.source ?? "the target itself", number(one.distance)])))];
  if (said.columns.length) {
    parts.push(...section("Columns that speak for it, and against", `Compared with “${said.rival}”, the likeliest other class.`, grid(
      ["column", "here", "usual for it", "for the other", "speaks"],
      said.columns.map((one) => [one.name, number(one.value), number(one.usual), number(one.rival),
        make("span", { className: one.speaks, textContent: `${one.speaks} ${percent(Math.abs(one.share ?? 0))}` })]))));
  }
  return parts;
};

$("why-close").addEventListener("click", () => $("why").close());
$("why").addEventListener("click", (event) => { if (event.target === $("why")) $("why").close(); });
