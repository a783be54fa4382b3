// Conversations as files: JSON, which can be imported again, and Markdown, to be read.

import { contentOf, newId, pathTo, type Message } from "./conversation";
import type { Saved } from "./library";
import { strings } from "./strings";

const FORMAT = "surefoot-conversations";
const VERSION = 1;

export function toJson(conversations: Saved[]): string {
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1);
}

/** The branch that is shown, with the names of the speakers as headings. */
export function toMarkdown({ conversation, messages }: Saved): string {
  const path = pathTo(new Map(messages.map((message) => [message.id, message])), conversation.last);
  const speaker = (message: Message) => (message.role === "user" ? strings.you : message.request.model);
  const parts = path.map((message) => `## ${speaker(message)}\n\n${contentOf(message)}\n`);
  return [`# ${conversation.title || strings.untitled}\n`, ...parts].join("\n");
}

/** Conversations of an exported file, as new ones: importing twice overwrites nothing. Throws if the file is no export. */
export function fromJson(text: string): Saved[] {
  const file = JSON.parse(text) as { format?: unknown; conversations?: unknown };
  if (file.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error(strings.notAnExport);
  return file.conversations.map(renewed);
}

function renewed(saved: unknown): Saved {
  const { conversation, messages } = saved as { conversation?: Record<string, unknown>; messages?: unknown };
  if (!conversation || !Array.isArray(messages) || !messages.every(isMessage)) throw new Error(strings.notAnExport);
  const ids = new Map(messages.map(({ id }) => [id, newId()]));
  const orders = new Map(messages.map(({ id, order }) => [id, order]));
  const renew = (id: unknown) => ids.get(id as string) ?? null;
  const id = newId();
  return {
    conversation: {
      id,
      title: String(conversation["title"]),
      isPinned: conversation["isPinned"] === true,
      changed: Number(conversation["changed"]) || Date.now(),
      last: renew(conversation["last"]),
    },
    messages: messages.map((message) => {
      const isLater = message.parent === null || (orders.get(message.parent) ?? Infinity) < message.order;
      if (!isLater) throw new Error(strings.notAnExport); // messages in a circle would never end
      return { ...message, id: ids.get(message.id) ?? newId(), conversation: id, parent: renew(message.parent) };
    }),
  };
}

/** Whether the page can show it. The rest of an answer is only read when it is asked again. */
function isMessage(value: unknown): value is Message {
  const message = value as Partial<Message> | null;
  const hasPlace = typeof message?.id === "string" && typeof message.order === "number" && message.parent !== undefined;
  if (!hasPlace || typeof message.content !== "string") return false;
  if (message.role === "user") return Array.isArray(message.attachments) && message.attachments.every(isAttachment);
  const isAnswer = message.role === "assistant" && Array.isArray(message.toolCalls) && Array.isArray(message.logprobs);
  return isAnswer && typeof message.reasoning === "string" && typeof message.request?.model === "string";
}

function isAttachment(value: unknown): boolean {
  const file = value as { name?: unknown; text?: unknown } | null;
  return typeof file?.name === "string" && typeof file.text === "string";
}

/** Lets the user save the text. */
export function download(name: string, text: string, type: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

export const fileName = (title: string) =>
  (title || strings.untitled)
    .replaceAll(/[^\p{L}\p{N}]+/gu, "-")
    .replaceAll(/^-|-$/g, "")
    .slice(0, 60)
    .toLowerCase();
