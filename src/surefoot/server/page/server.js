// Requests to the server that this page came from. Addresses are relative, so the page works behind a proxy's prefix.

const KEY = "surefoot-key";

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

export function keyHeaders() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** What a login form says of a request that was refused. */
export const loginProblem = (error, key) => (error.status !== 401 ? error.message : key ? "This key is not valid here." : "");

async function ask(path, options = {}) {
  const headers = { ...options.headers, ...keyHeaders() };
  const reply = await fetch(path, { ...options, headers });
  if (!reply.ok) throw new Refusal(reply.status, await errorOf(reply));
  return reply;
}

async function errorOf(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text || `the server answered ${reply.status}`;
  }
}

export const readSchema = async () => (await ask("openapi.json")).json();
export const listModels = async () => (await (await ask("v1/models")).json()).data;

/** Events of an answer as {id, data}, beginning after `lastId` if it is given. */
export async function* streamChat(body, { lastId = null, signal } = {}) {
  const headers = { "Content-Type": "application/json", ...(lastId ? { "Last-Event-ID": lastId } : {}) };
  yield* events(await ask("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal }));
}

/** What operators watch of a model, as {id, data}. Not by EventSource, which cannot send a key. */
export async function* streamOverview(model, signal) {
  yield* events(await ask(`overview?model=${encodeURIComponent(model)}`, { signal }));
}

async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) if (!event.startsWith(":")) yield parseEvent(event); // a comment shows life
  }
}

function parseEvent(text) {
  const fields = Object.fromEntries(text.split("\n").map((line) => {
    const colon = line.indexOf(": ");
    return [line.slice(0, colon), line.slice(colon + 2)];
  }));
  return { id: fields.id ?? null, data: fields.data === "[DONE]" ? null : JSON.parse(fields.data) };
}
