// The demo's own panel: how well it does, and the buttons of the simulated plant.
import { get, post, Refused } from "./api.js";
import { $, make } from "./words.js";

export class Demo {
  constructor(changed) {
    this.changed = changed;
    this.marks = [];
  }

  async look() {
    const said = await get("/v1/demo").catch(() => null);
    if (!said) return;
    $("demo").hidden = false;
    this.target = said.target;
    $("demo-title").textContent = said.title;
    $("demo-words").textContent = said.words;
    $("demo-figures").replaceChildren(...said.figures.map((one) => make("div", {}, make("b", { textContent: one.value }), make("span", { textContent: one.name }))));
    if (said.plant) this.plant(said.plant);
    if (said.marks.length !== this.marks.length) {
      this.marks = said.marks.map((mark) => ({ ...mark, kind: "mark" }));
      this.changed();
    }
  }

  plant(plant) {
    if ($("plant").hidden) this.build(plant);
    press("plant-modes", plant.mode);
    press("plant-faults", plant.fault);
    $("plant-said").textContent = plant.said;
    if (document.activeElement !== $("plant-speed")) $("plant-speed").value = plant.speed;
    $("plant-speed-value").textContent = `${$("plant-speed").value} h`;
  }

  build(plant) {
    $("plant").hidden = false;
    buttons("plant-modes", plant.modes.map((mode) => [mode, String(mode), `operating mode ${mode}`]), (mode) => this.ask("mode", { mode }));
    buttons("plant-faults", plant.faults.map((words, fault) => [fault, fault ? String(fault) : "none", fault ? `fault ${fault}: ${words}` : "none: no fault, normal operation"]), (fault) => this.ask("fault", { fault }));
    $("plant-speed").addEventListener("change", () => this.ask("speed", { speed: Number($("plant-speed").value) }));
    $("plant-speed").addEventListener("input", () => { $("plant-speed-value").textContent = `${$("plant-speed").value} h`; });
  }

  async ask(what, body) {
    try {
      this.plant(await post(`/v1/plant/${what}`, body));
    } catch (error) {
      $("plant-said").textContent = error instanceof Refused ? error.message : "The service cannot be reached at the moment.";
    }
    this.look();
  }
}

const buttons = (id, all, press) => {
  $(id).querySelector(".buttons").replaceChildren(...all.map(([value, text, words]) => {
    const button = make("button", { type: "button", textContent: text, title: words });
    button.setAttribute("aria-label", words);
    button.dataset.value = value;
    button.addEventListener("click", () => press(value));
    return button;
  }));
};

const press = (id, value) => {
  for (const button of $(id).querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.value === String(value)));
};
