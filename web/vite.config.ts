// Builds the page into the Python package. File names are plain and stable, so the same sources give the same bytes.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

const PAGE = "../src/surefoot/server/page";

/** licenses.txt: the licence of every package whose code is in the built files. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const modules = Object.values(bundle).flatMap((file) => (file.type === "chunk" ? file.moduleIds : []));
      const names = modules.map((id) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(id)?.[1]);
      const packages = [...new Set(names)].filter((name) => name !== undefined).sort();
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: packages.map(licenseOf).join("\n\n") });
    },
  };
}

// Sections of pdf.js that draw pages, edit them and show forms. Their classes have static blocks, so no bundler leaves
// them out.
const UNUSED =
  /^;\/\/ \.\/src\/(?:display\/(?:editor\/|annotation_layer|xfa_layer|canvas\.)|core\/(?:xfa\/|editor\/|annotation\.|jpg\.)).*\n(?:(?!;\/\/ \.\/).*\n)*/gm;
const ALL_OF_IT = /^ *(?:globalThis\.\w+ =|export) {[^}]*};$/gm;

/** pdf.js with what reads text alone. */
function textOfPdfs(): Plugin {
  return {
    name: "text-of-pdfs",
    transform(code, id) {
      const file = /\/pdfjs-dist\/build\/pdf(\.worker)?\.mjs/.exec(id);
      if (!file) return null;
      const used = code.replace(UNUSED, "");
      return file[1] ? used : `${used.replace(ALL_OF_IT, "")}\nexport { getDocument, PDFWorker };`;
    },
  };
}

function licenseOf(name: string): string {
  const folder = join("node_modules", name);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (file === undefined) throw new Error(`${name} has no licence file`);
  return `${name} ${version}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
}

export default defineConfig({
  base: "./",
  plugins: [licenses(), textOfPdfs()],
  worker: {
    format: "es",
    plugins: () => [textOfPdfs()],
    rolldownOptions: { output: { entryFileNames: "[name].js" } },
  },
  build: {
    outDir: PAGE,
    emptyOutDir: true,
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    target: "es2022",
    license: false,
    rolldownOptions: {
      input: { main: "src/main.tsx", docs: "src/docs.ts" },
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "[name].js",
        assetFileNames: "[name][extname]",
        comments: { legal: false },
      },
    },
  },
});
