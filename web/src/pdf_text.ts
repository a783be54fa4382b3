// The text of a PDF's pages, within bounds, and what is said of a PDF that cannot be read.

import { strings } from "./strings";

export const MOST_PAGES = 1000;
export const MOST_CHARACTERS = 4 << 20;

/** What is used of pdf.js's PDFDocumentProxy. */
export interface PdfDocument {
  numPages: number;
  getPage: (number: number) => Promise<{ getTextContent: () => Promise<{ items: object[] }> }>;
}

/** Says by its message what the user should know. */
class PdfProblem extends Error {}

/** Throws for a PDF with too many pages, too much text or none. */
export async function textOf(document: PdfDocument, name: string): Promise<string> {
  if (document.numPages > MOST_PAGES) throw new PdfProblem(strings.pdf.tooManyPages(name, MOST_PAGES));
  const pages: string[] = [];
  let length = 0;
  for (let number = 1; number <= document.numPages; number++) {
    const { items } = await (await document.getPage(number)).getTextContent();
    const page = items.map(textOfItem).join("").trim();
    length += page.length;
    if (length > MOST_CHARACTERS) throw new PdfProblem(strings.pdf.tooMuchText(name, MOST_CHARACTERS));
    if (page) pages.push(page);
  }
  if (!pages.length) throw new PdfProblem(strings.pdf.noText(name));
  return pages.join("\n\n");
}

const textOfItem = (item: { str?: string; hasEOL?: boolean }) => `${item.str ?? ""}${item.hasEOL ? "\n" : ""}`;

/** What is said of an error of pdf.js or of `textOf`. */
export function problemOf(error: unknown, name: string): string {
  if (error instanceof PdfProblem) return error.message;
  const isLocked = error instanceof Error && error.name === "PasswordException";
  return isLocked ? strings.pdf.encrypted(name) : strings.pdf.unreadable(name);
}
