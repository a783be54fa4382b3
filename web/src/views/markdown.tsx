// A text in Markdown.

import { useLayoutEffect, useRef } from "preact/hooks";
import { MarkdownView } from "../text/markdown_view";

export function Markdown({ text, isComplete }: { text: string; isComplete: boolean }) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView | null>(null);
  useLayoutEffect(() => {
    if (!place.current) return;
    view.current ??= new MarkdownView(place.current);
    view.current.show(text, isComplete);
  }, [text, isComplete]);
  return <div class="markdown" ref={place} />;
}
