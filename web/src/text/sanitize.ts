// The one place where text becomes markup. DOMPurify parses the HTML in a document that runs nothing and loads nothing,
// and keeps these tags and attributes.

import DOMPurify from "dompurify";

const TAGS = (
  "a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i ins kbd li mark ol p pre q s samp small " +
  "span strong sub summary sup table tbody td tfoot th thead tr u ul var"
).split(" ");
const ATTRIBUTES = ["align", "class", "colspan", "href", "open", "rowspan", "start", "title"];
/** What markdown.ts and highlight.js set. Other classes could make a text look like a part of the page. */
const CLASSES = /^(math|math-display|hljs-[\w-]+|language-[\w+#.-]+|[a-z]+_)$/;
const LINK = /^(https?:|mailto:)/i;

DOMPurify.addHook("uponSanitizeAttribute", (_, attribute) => {
  if (attribute.attrName !== "class") return;
  attribute.attrValue = attribute.attrValue
    .split(/\s+/)
    .filter((name) => CLASSES.test(name))
    .join(" ");
  attribute.keepAttr = attribute.attrValue !== "";
});

DOMPurify.addHook("afterSanitizeAttributes", (element) => {
  if (element.tagName !== "A") return;
  if (!LINK.test(element.getAttribute("href") ?? "")) {
    element.removeAttribute("href");
    return;
  }
  element.setAttribute("target", "_blank");
  element.setAttribute("rel", "noopener noreferrer nofollow");
});

export function sanitize(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
