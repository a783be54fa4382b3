// A block of code: its language, a button that copies it, and colours as soon as highlight.js is there.

import { copyText } from "../clipboard";
import { strings } from "../strings";
import { sanitize } from "./sanitize";

/** Puts a bar above the block. */
export function addBar(code: HTMLElement): void {
  const block = code.parentElement;
  if (!block) return;
  const frame = document.createElement("div");
  frame.className = "code-block";
  const bar = document.createElement("div");
  bar.className = "code-bar";
  bar.append(languageOf(code), copyButton(code));
  block.replaceWith(frame);
  block.tabIndex = 0; // a long line is scrolled by keys too
  frame.append(bar, block);
}

export async function addColours(codes: HTMLElement[]): Promise<void> {
  const { colour } = await import("./highlighter");
  for (const code of codes) {
    await new Promise((done) => setTimeout(done)); // a task for each block, so that scrolling goes on between them
    const html = colour(code.textContent, languageOf(code));
    if (html !== null) code.replaceChildren(sanitize(html));
  }
}

export function languageOf(code: Element): string {
  return /language-(\S+)/.exec(code.className)?.[1] ?? "";
}

function copyButton(code: HTMLElement): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = strings.copy;
  button.addEventListener("click", () => {
    copyText(code.textContent);
    button.textContent = strings.copied;
    setTimeout(() => (button.textContent = strings.copy), 1500);
  });
  return button;
}
