// A conversation is a tree of messages: editing a message, or asking again, begins a branch beside it.

import type { ChatRequest, ToolCall, Usage } from "./api_types";

export interface Attachment {
  name: string;
  text: string;
}

interface Place {
  id: string;
  /** The conversation's id. */
  conversation: string;
  /** Id of the message that this one answers; null: it is the first. */
  parent: string | null;
  /** Later messages have greater numbers. */
  order: number;
}

export interface Question extends Place {
  role: "user";
  content: string;
  attachments: Attachment[];
}

export interface Answer extends Place {
  role: "assistant";
  content: string;
  reasoning: string;
  toolCalls: ToolCall[];
  logprobs: number[];
  state: "writing" | "done" | "stopped" | "failed";
  /** The tab that receives it. */
  writer: string;
  request: ChatRequest;
  /** Id of the last event that came, to go on after it. */
  lastId: string | null;
  fingerprint?: string | undefined;
  usage?: Usage | undefined;
  /** What comparing it with a second answer showed. */
  same?: string | undefined;
}

export type Message = Question | Answer;

export interface Conversation {
  id: string;
  title: string;
  isPinned: boolean;
  changed: number;
  /** Id of the message that is shown last. */
  last: string | null;
}

export type Messages = ReadonlyMap<string, Message>;

const TITLE_CHARACTERS = 60;

/** Random enough that no two tabs choose the same. crypto.randomUUID is only there for pages that came over TLS. */
export function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation(): Conversation {
  return { id: newId(), title: "", isPinned: false, changed: Date.now(), last: null };
}

/** The first words of a question. */
export function titleOf(text: string): string {
  const words = text.replaceAll(/\s+/g, " ").trim();
  if (words.length <= TITLE_CHARACTERS) return words;
  return `${words.slice(0, TITLE_CHARACTERS).replace(/\s\S*$/, "")} …`;
}

export const byOrder = (messages: Iterable<Message>) =>
  [...messages].sort((a, b) => a.order - b.order || (a.id < b.id ? -1 : 1));

export const nextOrder = (messages: Messages) => Math.max(0, ...[...messages.values()].map(({ order }) => order)) + 1;

/** The messages from the first to `last`. */
export function pathTo(messages: Messages, last: string | null): Message[] {
  const path: Message[] = [];
  let message = last === null ? undefined : messages.get(last);
  while (message) {
    path.push(message);
    message = message.parent === null ? undefined : messages.get(message.parent);
  }
  return path.reverse();
}

/** By id of a message: ids of those that answer or replace the same one, the message among them, the oldest first. */
export function versionsOf(messages: Messages): Map<string, string[]> {
  const byPlace = new Map<string, string[]>();
  const byId = new Map<string, string[]>();
  for (const { id, parent, role } of byOrder(messages.values())) {
    const place = `${role} ${parent ?? ""}`;
    const ids = byPlace.get(place) ?? [];
    ids.push(id);
    byPlace.set(place, ids);
    byId.set(id, ids);
  }
  return byId;
}

/** Where the branch through this message ends, if the newest message is taken at every fork. */
export function newestEnd(messages: Messages, id: string): string {
  const newest = new Map(byOrder(messages.values()).map((message) => [message.parent, message.id]));
  let end = id;
  for (let next = newest.get(end); next !== undefined; next = newest.get(end)) end = next;
  return end;
}

/** What the model is told: the question, after the files that go with it. */
export function contentOf(message: Message): string {
  if (message.role === "assistant") return message.content;
  const files = message.attachments.map(({ name, text }) => `${name}:\n${fenced(text, name)}`);
  return [...files, message.content].filter(Boolean).join("\n\n");
}

/** The text as a block of code, with more backticks than it has in a row. */
function fenced(text: string, name: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  const language = /\.(\w+)$/.exec(name)?.[1] ?? "";
  return `${fence}${language}\n${text.replace(/\n$/, "")}\n${fence}`;
}
