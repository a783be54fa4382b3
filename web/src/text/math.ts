// Draws formulas. KaTeX is large, so it is loaded with the first one. Its MathML needs no fonts and no styles.

export async function drawMath(formulas: HTMLElement[]): Promise<void> {
  const { default: katex } = await import("katex");
  for (const formula of formulas) {
    const displayMode = formula.classList.contains("math-display");
    try {
      katex.render(formula.textContent, formula, { displayMode, output: "mathml", trust: false, maxExpand: 1000 });
    } catch {
      formula.classList.add("math-error"); // the TeX stays to be read
    }
  }
}
