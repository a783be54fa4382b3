// Markdown to DOM nodes: headings, lists, code, quotes, emphasis and links. Nodes are built, never parsed from HTML, so
// that a model's text cannot bring markup or scripts of its own. Written by hand because that needs so little.

import { element } from "./dom.js";

const INLINE = /(`[^`]+`)|(\*\*[^*]+\*\*)|(\*[^*\s][^*]*\*)|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)/g;

const make = (tag, ...children) => element(tag, {}, ...children);

function inline(text) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    if (match[1]) nodes.push(make("code", match[1].slice(1, -1)));
    else if (match[2]) nodes.push(make("strong", match[2].slice(2, -2)));
    else if (match[3]) nodes.push(make("em", match[3].slice(1, -1)));
    else {
      nodes.push(element("a", { href: match[5], target: "_blank", rel: "noopener noreferrer nofollow" }, match[4]));
    }
  }
  return [...nodes, text.slice(end)];
}

/** Blocks of the text, in order: [kind, lines]. A code block that is not closed yet reaches to the end. */
function blocks(text) {
  const found = [];
  let isCode = false;
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) {
      isCode = !isCode;
      if (isCode) found.push(["code", []]);
      else found.push(["end", []]);
      continue;
    }
    const kind = isCode ? "code" : kindOf(line);
    const last = found.at(-1);
    if (last && last[0] === kind && kind !== "heading") last[1].push(line);
    else found.push([kind, [line]]);
  }
  return found;
}

function kindOf(line) {
  if (/^\s*$/.test(line)) return "end";
  if (/^#{1,6} /.test(line)) return "heading";
  if (/^\s*[-*+] /.test(line)) return "ul";
  if (/^\s*\d+[.)] /.test(line)) return "ol";
  if (/^> ?/.test(line)) return "quote";
  return "text";
}

const render = {
  code: (lines) => make("pre", make("code", lines.join("\n"))),
  heading: ([line]) => make("p", make("strong", ...inline(line.replace(/^#+ /, "")))),
  ul: (lines) => make("ul", ...lines.map((line) => make("li", ...inline(line.replace(/^\s*[-*+] /, ""))))),
  ol: (lines) => make("ol", ...lines.map((line) => make("li", ...inline(line.replace(/^\s*\d+[.)] /, ""))))),
  quote: (lines) => make("blockquote", ...inline(lines.map((line) => line.replace(/^> ?/, "")).join("\n"))),
  text: (lines) => make("p", ...lines.flatMap((line, place) => (place ? [make("br"), ...inline(line)] : inline(line)))),
};

export const markdown = (text) => blocks(text).filter(([kind]) => kind !== "end").map(([kind, lines]) => render[kind](lines));
