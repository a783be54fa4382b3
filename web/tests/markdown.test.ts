// Our HTML is markdown-it's own, except where we add something: math, pictures as links, unknown tags as text.

import MarkdownIt from "markdown-it";
import { describe, expect, test } from "vitest";
import { OPTIONS, renderBlocks } from "../src/text/markdown";
import { CASES } from "./cases";

const render = (text: string) => renderBlocks(text).join("");

function reference(text: string): string {
  const markdown = new MarkdownIt(OPTIONS);
  markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
  return markdown.render(text).replaceAll(/ style="text-align:(\w+)"/g, ' align="$1"');
}

test("there are 40 cases", () => expect(CASES.length).toBeGreaterThanOrEqual(40));

describe.each(CASES)("$name", ({ text }) => {
  test("is what markdown-it makes of it", () => expect(render(text)).toBe(reference(text)));
  test.skipIf(text.includes("<details>"))("is the same in every part that streams in", () => {
    for (let end = 0; end < text.length; end++) expect(render(text.slice(0, end))).toBe(reference(text.slice(0, end)));
  });
});

test("a numbered list with blank lines counts on", () => {
  expect(render("1. a\n\n2. b\n\n3. c").match(/<ol/g)).toHaveLength(1);
});

const MATH = [
  ["in a line", "so $a_1 < b$.", '<p>so <span class="math">a_1 &lt; b</span>.</p>\n'],
  ["in a line, LaTeX's", "so \\(a*b*c\\).", '<p>so <span class="math">a*b*c</span>.</p>\n'],
  ["of its own", "$$\na\n= b\n$$", '<p><span class="math math-display">a\n= b</span></p>\n'],
  ["of its own, LaTeX's", "\\[\n- a\n\\]", '<p><span class="math math-display">- a</span></p>\n'],
  ["of its own in one line", "$$a$$", '<p><span class="math math-display">a</span></p>\n'],
  ["after text", "so:\n$$\na\n$$", '<p>so:</p>\n<p><span class="math math-display">a</span></p>\n'],
  ["in a list", "- $$\n  a\n  $$", '<ul>\n<li>\n<p><span class="math math-display">a</span></p>\n</li>\n</ul>\n'],
  ["two in a line", "$a$ and $b$", '<p><span class="math">a</span> and <span class="math">b</span></p>\n'],
  ["no prices", "from $5 to $6", "<p>from $5 to $6</p>\n"],
  ["no lone dollar", "a $ b $ c", "<p>a $ b $ c</p>\n"],
  ["nothing in code", "`$a$`", "<p><code>$a$</code></p>\n"],
  ["not while it is written", "$$\na", "<p>$$<br>\na</p>\n"],
] as const;

describe("math", () => {
  test.each(MATH)("%s", (_, text, html) => expect(render(text)).toBe(html));
});

const HTML = [
  ["unknown tags stay text", "a List<String> b", "<p>a List&lt;String&gt; b</p>\n"],
  ["pictures become links", "![cat](https://a.example/c.png)", '<p><a href="https://a.example/c.png">cat</a></p>\n'],
  ["pictures of HTML stay text", "<img src=x onerror=alert(1)>", "<p>&lt;img src=x onerror=alert(1)&gt;</p>\n"],
  [
    "blocks with unknown tags stay text",
    "<div><x-y>\na\n</div>",
    "<p>&lt;div&gt;&lt;x-y&gt;<br>\na<br>\n&lt;/div&gt;</p>\n",
  ],
] as const;

describe("HTML", () => {
  test.each(HTML)("%s", (_, text, html) => expect(render(text)).toBe(html));
});
