// Bundles page/source into page/built.html, which is committed: nobody who installs trystate needs node.
//
//     npm ci && node build.mjs            write built.html
//     node build.mjs --check              is it what the sources make? 1 if not
//     node build.mjs --engine FILE [DIR]  the engine alone, for tests in node; of other sources than page/source

import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const SOURCE = join(HERE, "source");
const BUILT = join(HERE, "built.html");
const common = { bundle: true, write: false, minify: true, target: "es2022", charset: "utf8", legalComments: "none", logLevel: "warning" };

/** `inline:./file.ts` is the text of the bundled file: the code of a Worker. */
const inline = {
  name: "inline",
  setup(made) {
    made.onResolve({ filter: /^inline:/ }, (args) => ({ path: join(args.resolveDir, args.path.slice("inline:".length)), namespace: "inline" }));
    made.onLoad({ filter: /.*/, namespace: "inline" }, async (args) => ({ contents: await bundled(args.path, "iife"), loader: "text" }));
  },
};

async function bundled(path, format) {
  const result = await build({ ...common, entryPoints: [path], format, plugins: [inline] });
  return result.outputFiles[0].text;
}

async function page() {
  const style = await build({ ...common, entryPoints: [join(SOURCE, "styles.css")] });
  const script = await bundled(join(SOURCE, "main.ts"), "iife");
  const put = (text, place, value) => text.replace(place, () => value.trim().replaceAll("</script", "<\\/script"));
  return put(put(readFileSync(join(SOURCE, "page.html"), "utf8"), "/*STYLE*/", style.outputFiles[0].text), "/*SCRIPT*/", script);
}

const [option, file, source = SOURCE] = process.argv.slice(2);
if (option === "--engine") {
  writeFileSync(file, await bundled(join(source, "node.ts"), "esm"));
} else {
  const text = await page();
  if (option !== "--check") writeFileSync(BUILT, text);
  else if (readFileSync(BUILT, "utf8") !== text) {
    console.error("page/built.html is not what page/source makes: run node page/build.mjs");
    process.exit(1);
  }
}
