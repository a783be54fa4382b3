// Requests to the server that this page came from. Addresses are relative, so the page works behind a proxy's prefix.

import type {
  CachedUser,
  ChatChunk,
  ChatRequest,
  History,
  Key,
  ManagedModels,
  Model,
  NewKey,
  Overview,
  Span,
} from "./api_types";
import { keyHeaders } from "./key";
import { strings } from "./strings";

export class Refusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** An event of a stream. data: null at its end. */
export interface StreamEvent<T> {
  id: string | null;
  data: T | null;
}

/** What a login form says of a request that was refused. */
export function loginProblem(error: unknown, key: string): string {
  if (!(error instanceof Refusal) || error.status !== 401) return messageOf(error);
  return key ? strings.wrongKey : "";
}

export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

async function ask(path: string, options: RequestInit = {}, headers: Record<string, string> = {}): Promise<Response> {
  const reply = await fetch(path, { ...options, headers: { ...headers, ...keyHeaders() } });
  if (!reply.ok) throw new Refusal(reply.status, await errorOf(reply));
  return reply;
}

async function post(path: string, body: unknown, options: RequestInit = {}, headers: Record<string, string> = {}) {
  const json = { ...headers, "Content-Type": "application/json" };
  return ask(path, { ...options, method: "POST", body: JSON.stringify(body) }, json);
}

async function errorOf(reply: Response): Promise<string> {
  const text = await reply.text();
  try {
    return (JSON.parse(text) as { error: { message: string } }).error.message;
  } catch {
    return text || strings.status(reply.status);
  }
}

export async function readSchema(): Promise<object> {
  return (await (await ask("openapi.json")).json()) as object;
}

export async function listModels(): Promise<Model[]> {
  return ((await (await ask("v1/models")).json()) as { data: Model[] }).data;
}

export async function countTokens(model: string, prompt: string): Promise<number> {
  const reply = await post("tokenize", { model, prompt, add_special_tokens: false });
  return ((await reply.json()) as { count: number }).count;
}

/** Events of an answer, beginning after `lastId` if it is given. */
export async function* streamChat(body: ChatRequest, lastId: string | null, signal: AbortSignal | null) {
  const headers: Record<string, string> = lastId ? { "Last-Event-ID": lastId } : {};
  yield* events<ChatChunk>(await post("v1/chat/completions", body, { signal }, headers));
}

/** What operators watch of a model. Not by EventSource, which cannot send a key. */
export async function* streamOverview(model: string, signal: AbortSignal) {
  yield* events<Overview>(await ask(`overview?model=${encodeURIComponent(model)}`, { signal }));
}

export async function readHistory(model: string, span: Span): Promise<History> {
  return (await (await ask(`overview/history?model=${encodeURIComponent(model)}&span=${span}`)).json()) as History;
}

const KEYS = "admin/keys";

export async function listKeys(): Promise<Key[]> {
  return ((await (await ask(KEYS)).json()) as { data: Key[] }).data;
}

export async function addKey(key: NewKey): Promise<{ key: string }> {
  return (await (await post(KEYS, key)).json()) as { key: string };
}

export async function revokeKey(name: string): Promise<void> {
  await ask(`${KEYS}/${encodeURIComponent(name)}`, { method: "DELETE" });
}

const MANAGED = "admin/models";

export async function listManaged(): Promise<ManagedModels> {
  return (await (await ask(MANAGED)).json()) as ManagedModels;
}

/** Ends when the model is loaded. */
export async function loadModel(model: string): Promise<ManagedModels> {
  return (await (await post(`${MANAGED}/load`, { model })).json()) as ManagedModels;
}

export async function unloadModel(model: string): Promise<ManagedModels> {
  return (await (await post(`${MANAGED}/unload`, { model })).json()) as ManagedModels;
}

const cacheOf = (model: string) => `admin/cache?model=${encodeURIComponent(model)}`;

export async function listCache(model: string): Promise<CachedUser[]> {
  return ((await (await ask(cacheOf(model))).json()) as { data: CachedUser[] }).data;
}

export async function forgetUser(model: string, user: string): Promise<void> {
  await ask(`${cacheOf(model)}&user=${encodeURIComponent(user)}`, { method: "DELETE" });
}

async function* events<T>(reply: Response): AsyncGenerator<StreamEvent<T>> {
  if (!reply.body) return;
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (text + value).split("\n\n");
    text = whole.pop() ?? "";
    for (const event of whole) if (!event.startsWith(":")) yield parseEvent<T>(event); // a comment shows life
  }
}

function parseEvent<T>(text: string): StreamEvent<T> {
  const fields = new Map(
    text.split("\n").map((line) => {
      const colon = line.indexOf(": ");
      return [line.slice(0, colon), line.slice(colon + 2)];
    }),
  );
  const data = fields.get("data") ?? "[DONE]";
  return { id: fields.get("id") ?? null, data: data === "[DONE]" ? null : (JSON.parse(data) as T) };
}
