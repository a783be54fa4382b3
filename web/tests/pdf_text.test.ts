import { expect, test } from "vitest";
import { MOST_CHARACTERS, MOST_PAGES, problemOf, textOf, type PdfDocument } from "../src/pdf_text";

type Items = { str: string; hasEOL: boolean }[];

const line = (str: string, hasEOL = true) => ({ str, hasEOL });

function pdf(...pages: Items[]): PdfDocument {
  const page = (number: number) => ({ getTextContent: () => Promise.resolve({ items: pages[number - 1]! }) });
  return { numPages: pages.length, getPage: (number) => Promise.resolve(page(number)) };
}

/** What the user is told of a PDF that is refused. */
const refusal = (document: PdfDocument) =>
  textOf(document, "a.pdf").catch((error: unknown) => problemOf(error, "a.pdf"));

test("pages follow each other, and lines are kept", async () => {
  const first = [line("One", false), line(" line"), line("another"), { type: "beginMarkedContent" } as never];
  expect(await textOf(pdf(first, [line(" ")], [line("Page three")]), "a.pdf")).toBe("One line\nanother\n\nPage three");
});

test("a scan is said to have no text", async () => {
  expect(await refusal(pdf([], [line(" ")]))).toBe("a.pdf has no text: it may be a scan.");
});

test("pages and characters are bounded", async () => {
  const pages = Array.from({ length: MOST_PAGES + 1 }, () => [line("a")]);
  expect(await refusal(pdf(...pages))).toBe("a.pdf has more than 1,000 pages.");
  const half = [line("a".repeat(MOST_CHARACTERS / 2))];
  expect((await textOf(pdf(half, half), "a.pdf")).length).toBe(MOST_CHARACTERS + 2);
  expect(await refusal(pdf(half, half, [line("a")]))).toBe("a.pdf has more than 4,194,304 characters of text.");
});

test("what pdf.js cannot read is said plainly", () => {
  const locked = Object.assign(new Error("No password given"), { name: "PasswordException" });
  expect(problemOf(locked, "a.pdf")).toBe("a.pdf is encrypted: attach a copy without a password.");
  expect(problemOf(new Error("bad XRef entry"), "a.pdf")).toBe(
    "a.pdf cannot be read: it is not a valid PDF, or this browser is too old.",
  );
});
