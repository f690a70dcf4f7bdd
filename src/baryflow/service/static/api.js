// Talking to the service: JSON, and server-sent events read from a fetch so that a token can go along.

const KEY = "baryflow-token";

export class Refused extends Error {}

const headers = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

let asking = null;

// Ask for the token, once for all who wait for it.
const ask = () => {
  asking ??= new Promise((done) => {
    const dialog = document.getElementById("ask"), input = document.getElementById("token");
    document.getElementById("ask-wrong").textContent = sessionStorage.getItem(KEY) ? "That token was not accepted." : "";
    input.value = "";
    dialog.addEventListener("close", () => {
      if (input.value) sessionStorage.setItem(KEY, input.value);
      asking = null;
      done();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
};

const request = async (path, options = {}) => {
  for (;;) {
    const answer = await fetch(path, { cache: "no-store", ...options, headers: { ...options.headers, ...headers() } });
    if (answer.status !== 401) return answer;
    await ask();
  }
};

export const get = async (path, options) => {
  const answer = await request(path, options);
  if (!answer.ok) throw new Refused(await words(answer));
  return answer.json();
};

export const post = (path, body) =>
  get(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

const words = async (answer) => {
  try {
    const body = await answer.json();
    return String(body.error?.words ?? body.error ?? body.detail ?? answer.status);
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
};

export const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

// Follow a stream of events for ever: what breaks is opened again, later and later.
export const follow = async (path, { event, state, signal }) => {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const answer = await request(path, { signal });
      if (!answer.ok || !answer.body) throw new Refused(await words(answer));
      state("live");
      wait = 500;
      await read(answer.body, event);
    } catch (error) {
      if (signal.aborted) return;
    }
    if (signal.aborted) return;
    state("lost");
    await pause(wait);
    wait = Math.min(2 * wait, 5000);
  }
};

const read = async (body, event) => {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value.replaceAll("\r", "");
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) tell(part, event);
  }
};

const tell = (part, event) => {
  let kind = "message";
  const data = [];
  for (const line of part.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) event(kind, JSON.parse(data.join("\n")));
};
