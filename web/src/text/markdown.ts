// Markdown to HTML, which sanitize.ts must see before it is shown.

import MarkdownIt, { type MarkdownIt as Markdown } from "markdown-it";
import { mathRules } from "./math_rules";

/** HTML tags that a text may use. Others are shown as they were written: `List<String>` keeps its `<String>`. */
const HTML_TAGS = new Set(
  (
    "a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i ins kbd li mark ol p pre q s samp small " +
    "span strong sub summary sup table tbody td tfoot th thead tr u ul var"
  ).split(" "),
);

export const OPTIONS = { html: true, linkify: true, breaks: true };

const markdown = makeMarkdown();

function makeMarkdown(): Markdown {
  const made = new MarkdownIt(OPTIONS).use(mathRules);
  made.linkify.set({ fuzzyLink: false, fuzzyEmail: false }); // "main.py" is a file, not a site in Paraguay
  const shown = (html: string) => (hasKnownTags(html) ? html : made.utils.escapeHtml(html));
  made.renderer.rules["html_inline"] = (tokens, place) => shown(tokens[place]?.content ?? "");
  made.renderer.rules["html_block"] = (tokens, place) => {
    const html = tokens[place]?.content ?? "";
    return hasKnownTags(html) ? html : `<p>${shown(html.trimEnd()).replaceAll("\n", "<br>\n")}</p>\n`;
  };
  made.renderer.rules["image"] = (tokens, place) => {
    const token = tokens[place];
    const address = made.utils.escapeHtml(String(token?.attrGet("src") ?? ""));
    return `<a href="${address}">${made.utils.escapeHtml(token?.content ?? "") || address}</a>`;
  };
  made.renderer.rules["th_open"] = made.renderer.rules["td_open"] = (tokens, place, options, _, renderer) => {
    // The page's policy forbids style attributes, by which markdown-it aligns cells.
    for (const attribute of tokens[place]?.attrs ?? []) {
      if (attribute[0] === "style") attribute.splice(0, 2, "align", String(attribute[1]).replace("text-align:", ""));
    }
    return renderer.renderToken(tokens, place, options);
  };
  return made;
}

function hasKnownTags(html: string): boolean {
  const names = [...html.matchAll(/<\/?([a-z][^\s/>]*)/gi)].map((match) => match[1]?.toLowerCase() ?? "");
  return names.length > 0 && names.every((name) => HTML_TAGS.has(name));
}

/** The HTML of each block, in order. A text with blocks of HTML is one block, since its tags may reach over others. */
export function renderBlocks(text: string): string[] {
  const env = {};
  const tokens = markdown.parse(text, env);
  const render = (begin: number, end: number) =>
    markdown.renderer.render(tokens.slice(begin, end), markdown.options, env);
  if (tokens.some(({ type }) => type === "html_block")) return [render(0, tokens.length)];
  const blocks: string[] = [];
  let begin = 0;
  tokens.forEach(({ level, nesting }, place) => {
    if (level > 0 || nesting > 0) return;
    blocks.push(render(begin, place + 1));
    begin = place + 1;
  });
  return blocks;
}
