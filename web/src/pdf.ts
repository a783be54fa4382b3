// Reads PDFs by pdf.js, in a worker of their own. Loaded when the first PDF is attached.

import { getDocument, PDFWorker } from "pdfjs-dist";
import workerUrl from "pdfjs-dist/build/pdf.worker.mjs?worker&url";
import { problemOf, textOf } from "./pdf_text";

const MOST_MS = 60_000; // a small file can hold endless work

/** Throws an error whose message is for the user. */
export async function readPdf(file: File): Promise<string> {
  const port = new Worker(workerUrl, { type: "module" });
  try {
    return await Promise.race([read(file, port), failure(port)]);
  } catch (error) {
    throw new Error(problemOf(error, file.name), { cause: error });
  } finally {
    port.terminate();
  }
}

async function read(file: File, port: Worker): Promise<string> {
  const data = new Uint8Array(await file.arrayBuffer());
  const options = { disableFontFace: true, useWorkerFetch: false };
  const document = await getDocument({ data, worker: PDFWorker.create({ port }), ...options }).promise;
  return textOf(document, file.name);
}

/** Rejects if the worker cannot be started or takes too long. */
async function failure(port: Worker): Promise<never> {
  return new Promise((_, reject) => {
    port.addEventListener("error", () => reject(new Error("the worker failed")));
    setTimeout(() => reject(new Error("the worker takes too long")), MOST_MS);
  });
}
