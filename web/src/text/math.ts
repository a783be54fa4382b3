// Draws formulas. KaTeX is large, so it is loaded with the first one. Its MathML needs no fonts and no styles.

import { shaped } from "./math_letters";

export async function drawMath(formulas: HTMLElement[]): Promise<void> {
  const { default: katex } = await import("katex");
  for (const formula of formulas) {
    const displayMode = formula.classList.contains("math-display");
    const tex = formula.textContent;
    try {
      katex.render(tex, formula, { displayMode, output: "mathml", trust: false, maxExpand: 1000 });
    } catch {
      formula.textContent = tex; // to be read as it is
      formula.classList.add("math-error");
    }
    for (const letter of formula.querySelectorAll("[mathvariant]")) reshape(letter);
  }
}

function reshape(letter: Element): void {
  const text = letter.textContent;
  letter.textContent = shaped(text, letter.getAttribute("mathvariant") ?? "");
  if (letter.textContent !== text) letter.removeAttribute("mathvariant");
}
