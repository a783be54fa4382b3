import { expect, test } from "vitest";
import { contentOf, newestEnd, pathTo, titleOf, versionsOf, type Message, type Messages } from "../src/conversation";
import { answer, question } from "./messages";

const tree = (...messages: Message[]): Messages => new Map(messages.map((message) => [message.id, message]));

const BRANCHED = tree(
  question({ id: "q1", order: 1 }),
  answer({ id: "a1", order: 2, parent: "q1" }),
  question({ id: "q2", order: 3 }),
  answer({ id: "a2", order: 4, parent: "q2" }),
  answer({ id: "a3", order: 5, parent: "q2" }),
);

test("a path leads from the first message to the last", () => {
  expect(pathTo(BRANCHED, "a3").map(({ id }) => id)).toEqual(["q2", "a3"]);
  expect(pathTo(BRANCHED, null)).toEqual([]);
});

test("versions are the messages in one place, the oldest first", () => {
  const versions = versionsOf(BRANCHED);
  expect(versions.get("q2")).toEqual(["q1", "q2"]);
  expect(versions.get("a3")).toEqual(["a2", "a3"]);
  expect(versions.get("a1")).toEqual(["a1"]);
});

test("a branch ends with its newest message", () => {
  expect(newestEnd(BRANCHED, "q2")).toBe("a3");
  expect(newestEnd(BRANCHED, "q1")).toBe("a1");
});

test("a title is the first words", () => {
  expect(titleOf("  What\nis it? ")).toBe("What is it?");
  expect(titleOf("word ".repeat(30))).toMatch(/^(word ){12}…$/);
});

test("files go before the question, in a fence that they cannot close", () => {
  const attachments = [{ name: "a.py", text: "x = '```'\n" }];
  expect(contentOf(question({ content: "Why?", attachments }))).toBe("a.py:\n````py\nx = '```'\n````\n\nWhy?");
});
