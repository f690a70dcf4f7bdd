// Requests to the service: JSON, and server-sent events read with fetch, because EventSource cannot send a token.

const KEY = "baryflow-token";

export class RequestError extends Error {}

const authorization = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
};

let prompting = null;

// Show the token dialog, once for all requests that wait for it.
const askForToken = () => {
  prompting ??= new Promise((resolve) => {
    const dialog = document.getElementById("ask"), input = document.getElementById("token");
    document.getElementById("ask-wrong").textContent = sessionStorage.getItem(KEY) ? "The token was not accepted." : "";
    input.value = "";
    dialog.addEventListener("close", () => {
      if (input.value) sessionStorage.setItem(KEY, input.value);
      prompting = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return prompting;
};

const request = async (path, options = {}) => {
  for (;;) {
    const response = await fetch(path, { cache: "no-store", ...options, headers: { ...options.headers, ...authorization() } });
    if (response.status !== 401) return response;
    await askForToken();
  }
};

export const get = async (path, options) => {
  const response = await request(path, options);
  if (!response.ok) throw new RequestError(await errorMessage(response));
  return response.json();
};

export const post = (path, body) =>
  get(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

const errorMessage = async (response) => {
  try {
    return String((await response.json()).error ?? response.status);
  } catch {
    return `${response.status} ${response.statusText}`;
  }
};

// The text to show for an error of a request.
export const describeError = (error) => (error instanceof RequestError ? error.message : "The service is unreachable at the moment.");

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Read a stream of events until `signal` aborts; reconnect with backoff.
export const subscribe = async (path, { onEvent, onState, signal }) => {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const response = await request(path, { signal });
      if (!response.ok || !response.body) throw new RequestError(await errorMessage(response));
      onState("live");
      wait = 500;
      await readEvents(response.body, onEvent);
    } catch {
      if (signal.aborted) return;
    }
    if (signal.aborted) return;
    onState("lost");
    await sleep(wait);
    wait = Math.min(2 * wait, 5000);
  }
};

const readEvents = async (body, onEvent) => {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value.replaceAll("\r", "");
    const messages = buffer.split("\n\n");
    buffer = messages.pop();
    for (const message of messages) dispatch(message, onEvent);
  }
};

const dispatch = (message, onEvent) => {
  let type = "message";
  const data = [];
  for (const line of message.split("\n")) {
    if (line.startsWith("event:")) type = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) onEvent(type, JSON.parse(data.join("\n")));
};
