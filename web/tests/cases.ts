// Markdown that models write, from cases.md: sections that begin with "=== name".

import { readFileSync } from "node:fs";

export interface Case {
  name: string;
  text: string;
}

const FILE = new URL("cases.md", import.meta.url);

export const CASES: Case[] = readFileSync(FILE, "utf8")
  .split(/^=== /m)
  .slice(1)
  .map((section) => {
    const end = section.indexOf("\n");
    return { name: section.slice(0, end), text: section.slice(end + 1) };
  });
