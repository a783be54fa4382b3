// Files that go along with a message, as text; of a PDF its text alone.

import type { Attachment } from "./conversation";
import { strings } from "./strings";

const MOST_BYTES = 4 << 20;
const MOST_PDF_BYTES = 32 << 20;
const LONG_PASTE = 4000; // characters from which a pasted text becomes a file

const isPdf = ({ name, type }: File) => type === "application/pdf" || name.toLowerCase().endsWith(".pdf");

/** The file's text. Throws for a file that is too large or has none. */
export async function readAttachment(file: File): Promise<Attachment> {
  const most = isPdf(file) ? MOST_PDF_BYTES : MOST_BYTES;
  if (file.size > most) throw new Error(strings.tooLarge(file.name, `${most >> 20} MiB`));
  if (isPdf(file)) return { name: file.name, text: await (await import("./pdf")).readPdf(file) };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return { name: file.name, text };
  } catch {
    // no UTF-8: said below
  }
  throw new Error(strings.notText(file.name));
}

/** Files and long texts that were pasted or dropped. */
export async function readTransfer(transfer: DataTransfer): Promise<Attachment[]> {
  const files = [...transfer.files]; // the browser empties the transfer after the event
  const text = transfer.getData("text/plain");
  if (!files.length) return text.length >= LONG_PASTE ? [{ name: strings.pastedName, text }] : [];
  return Promise.all(files.map(readAttachment));
}

export const isForFile = (transfer: DataTransfer) =>
  transfer.files.length > 0 || transfer.getData("text/plain").length >= LONG_PASTE;
