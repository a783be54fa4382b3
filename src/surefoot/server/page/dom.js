// Builds DOM nodes: text stays text, so nothing that a model or a user wrote becomes markup.

export function element(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}
