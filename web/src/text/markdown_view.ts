// Shows a text that may still grow. Only blocks whose HTML has changed are replaced, so that a selection stays and
// nothing is drawn twice.

import { addBar, addColours, languageOf } from "./code_block";
import { renderBlocks } from "./markdown";
import { drawMath } from "./math";
import { sanitize } from "./sanitize";

const MOST_WHILE_WRITTEN = 4000; // characters of a block of code that is coloured while it grows

export class MarkdownView {
  private readonly place: HTMLElement;
  private shown: string[] = [];

  constructor(place: HTMLElement) {
    this.place = place;
  }

  show(text: string, isComplete: boolean): void {
    const blocks = renderBlocks(text);
    while (this.place.children.length > blocks.length) this.place.lastElementChild?.remove();
    blocks.forEach((html, place) => {
      const isGrowing = !isComplete && place === blocks.length - 1;
      const wanted = `${isGrowing ? "growing" : "whole"} ${html}`;
      if (this.shown[place] === wanted) return;
      const block = makeBlock(html, isGrowing);
      const old = this.place.children[place];
      if (old) old.replaceWith(block);
      else this.place.append(block);
      this.shown[place] = wanted;
    });
    this.shown.length = blocks.length;
  }
}

function makeBlock(html: string, isGrowing: boolean): HTMLElement {
  const block = document.createElement("div");
  block.className = "block";
  block.append(sanitize(html));
  for (const table of block.querySelectorAll("table")) wrapTable(table);
  const codes = [...block.querySelectorAll<HTMLElement>("pre > code")];
  codes.forEach(addBar);
  const coloured = codes.filter(
    (code) => languageOf(code) && !(isGrowing && code.textContent.length > MOST_WHILE_WRITTEN),
  );
  if (coloured.length) void addColours(coloured);
  const formulas = [...block.querySelectorAll<HTMLElement>(".math")];
  if (formulas.length) void drawMath(formulas);
  return block;
}

/** A wide table scrolls by itself. */
function wrapTable(table: HTMLTableElement): void {
  const frame = document.createElement("div");
  frame.className = "scroll";
  frame.tabIndex = 0;
  table.replaceWith(frame);
  frame.append(table);
}
