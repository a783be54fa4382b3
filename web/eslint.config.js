import { defineConfig } from "eslint/config";
import tseslint from "typescript-eslint";

const MARKUP = "Text becomes markup in src/text/sanitize.ts alone.";

export default defineConfig(
  { ignores: ["eslint.config.js"] },
  tseslint.configs.strictTypeChecked,
  { languageOptions: { parserOptions: { projectService: true } } },
  {
    rules: {
      "@typescript-eslint/no-confusing-void-expression": "off",
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "max-lines-per-function": ["error", { max: 60, skipBlankLines: true, skipComments: true }],
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML", "setHTMLUnsafe"].map((property) => ({
          property,
          message: MARKUP,
        })),
      ],
      "no-restricted-syntax": [
        "error",
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: MARKUP },
        { selector: "Identifier[name='innerHTML']", message: MARKUP },
      ],
    },
  },
  { files: ["tests/**"], rules: { "@typescript-eslint/no-non-null-assertion": "off" } },
);
