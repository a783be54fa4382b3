import "fake-indexeddb/auto";
import { IDBFactory } from "fake-indexeddb";
import { beforeEach, expect, test, vi } from "vitest";
import { newConversation } from "../src/conversation";
import { Library, type Change } from "../src/library";
import { fromJson, toJson, toMarkdown } from "../src/transfer";
import { answer, question } from "./messages";

beforeEach(() => vi.stubGlobal("indexedDB", new IDBFactory()));

const conversation = { ...newConversation(), id: "c", title: "Why?", last: "a" };
const messages = [question(), answer({ content: "Because of **rain**.", state: "done" })];

test("what was saved is found again", async () => {
  const library = await Library.open();
  await library.save(conversation, messages);
  expect(await library.conversations()).toEqual([conversation]);
  expect(await library.messages("c")).toEqual(expect.arrayContaining(messages));
  expect(await library.search("RAIN")).toEqual(new Set(["c"]));
  expect(await library.search("snow")).toEqual(new Set());
});

test("a removed conversation takes its messages along", async () => {
  const library = await Library.open();
  await library.save(conversation, messages);
  await library.remove("c");
  for (const message of messages) await library.saveMessage(message); // an answer that was still being written
  expect([await library.conversations(), await library.messages("c")]).toEqual([[], []]);
});

test("other tabs hear of changes", async () => {
  const [one, other] = [await Library.open(), await Library.open()];
  const heard = new Promise<Change>((done) => other.onChange(done));
  await one.save(conversation, []);
  expect(await heard).toEqual({ conversation: "c", message: null });
});

test("an export is imported as new conversations", () => {
  const [copy] = fromJson(toJson([{ conversation, messages }]));
  const [first, second] = copy?.messages ?? [];
  expect(copy?.conversation).toMatchObject({ title: "Why?", last: second?.id });
  expect(copy?.conversation.id).not.toBe("c");
  expect(first).toMatchObject({ content: "Why?", parent: null, conversation: copy?.conversation.id });
  expect(second).toMatchObject({ content: "Because of **rain**.", parent: first?.id });
});

test.each([
  ["another format", "{}"],
  ["no messages", '{"format":"surefoot-conversations","conversations":[{"conversation":{}}]}'],
  ["a message that is none", toJson([{ conversation, messages: [{ ...question(), content: 3 } as never] }])],
  ["messages in a circle", toJson([{ conversation, messages: [question({ parent: "q" })] }])],
])("%s is no export", (_, text) => expect(() => fromJson(text)).toThrow("no export"));

test("Markdown has the branch that is shown", () => {
  const hidden = answer({ id: "b", order: 3, content: "hidden" });
  const text = toMarkdown({ conversation, messages: [...messages, hidden] });
  expect(text).toBe("# Why?\n\n## You\n\nWhy?\n\n## small\n\nBecause of **rain**.\n");
});
