// Rules for markdown-it: $…$ and \(…\) within a line, $$…$$ and \[…\] as formulas of their own. They become elements of
// class "math" that hold the TeX as text; math.ts draws them.

import type { MarkdownIt, StateBlock, StateInline } from "markdown-it";

interface Fence {
  open: string;
  close: string;
  isDisplay: boolean;
}

const FENCES: Fence[] = [
  { open: "$$", close: "$$", isDisplay: true },
  { open: "\\[", close: "\\]", isDisplay: true },
  { open: "\\(", close: "\\)", isDisplay: false },
  { open: "$", close: "$", isDisplay: false },
];

export function mathRules(markdown: MarkdownIt): void {
  const escape = (text: string) => markdown.utils.escapeHtml(text);
  markdown.inline.ruler.before("escape", "math", inlineMath);
  const alt = ["paragraph", "reference", "blockquote", "list"];
  markdown.block.ruler.before("fence", "math_block", blockMath, { alt });
  markdown.renderer.rules["math"] = (tokens, place) => {
    const token = tokens[place];
    const kind = token?.meta?.isDisplay ? "math math-display" : "math";
    return `<span class="${kind}">${escape(token?.content ?? "")}</span>`;
  };
  markdown.renderer.rules["math_block"] = (tokens, place) =>
    `<p><span class="math math-display">${escape(tokens[place]?.content ?? "")}</span></p>\n`;
}

function inlineMath(state: StateInline, silent: boolean): boolean {
  const fence = FENCES.find(({ open }) => state.src.startsWith(open, state.pos));
  if (!fence) return false;
  const begin = state.pos + fence.open.length;
  const end = closing(state.src, begin, fence);
  if (end < 0 || end > state.posMax) return false;
  if (!silent) {
    const token = state.push("math", "", 0);
    token.content = state.src.slice(begin, end).trim();
    token.meta = { isDisplay: fence.isDisplay };
  }
  state.pos = end + fence.close.length;
  return true;
}

/** Where the formula ends; -1: this is no formula. Two prices in a line ("$5 and $6") are none: a single dollar opens
 * before a character that is no space, and closes after one, if no digit follows. */
function closing(text: string, begin: number, { close }: Fence): number {
  const isDollar = close === "$";
  if (isDollar && /\s/.test(text.charAt(begin))) return -1;
  for (let end = text.indexOf(close, begin); end >= 0; end = text.indexOf(close, end + 1)) {
    const isEscaped = close.startsWith("$") && text.charAt(end - 1) === "\\";
    if (isEscaped || end === begin) continue;
    if (!isDollar) return end;
    if (!/\s/.test(text.charAt(end - 1)) && !/\d/.test(text.charAt(end + 1))) return end;
  }
  return -1;
}

/** A formula that begins a line with $$ or \[ and whose closing fence ends a line. */
function blockMath(state: StateBlock, first: number, endLine: number, silent: boolean): boolean {
  if ((state.sCount[first] ?? 0) - state.blkIndent >= 4) return false;
  const line = (number: number) =>
    state.src.slice((state.bMarks[number] ?? 0) + (state.tShift[number] ?? 0), state.eMarks[number] ?? 0).trimEnd();
  const fence = FENCES.find(({ open, isDisplay }) => isDisplay && line(first).startsWith(open));
  if (!fence) return false;
  const lines = [line(first).slice(fence.open.length)];
  let last = first;
  while (!lines.at(-1)?.endsWith(fence.close)) {
    last += 1;
    if (last >= endLine || (state.sCount[last] ?? 0) < state.blkIndent) return false;
    lines.push(line(last));
  }
  if (silent) return true;
  const token = state.push("math_block", "", 0);
  token.content = lines.join("\n").slice(0, -fence.close.length).trim();
  token.map = [first, last + 1];
  state.line = last + 1;
  return true;
}
