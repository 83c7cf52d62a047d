// Answers for `wasm.rs`: reads cases, a line of JSON each, and writes a line for each: the status and the module's JSON.
//
// usage: node answers.mjs MODULE CASES
import { readFileSync, writeSync } from "node:fs";
import { checker } from "../check.mjs";

const [, , modulePath, casesPath] = process.argv;
const module = new WebAssembly.Module(readFileSync(modulePath));
const imports = WebAssembly.Module.imports(module);
if (imports.length > 0) throw new Error(`expected a module that imports nothing, found ${JSON.stringify(imports)}`);

const bundles = new Map();
const read = (path) => bundles.get(path) ?? bundles.set(path, readFileSync(path)).get(path);

let check = await checker(module);
for (const line of readFileSync(casesPath, "utf8").split("\n").slice(0, -1)) {
  const { policy, bundle: path, end, change } = JSON.parse(line);
  const bundle = Uint8Array.from(read(path).subarray(0, end));
  if (change) bundle[change[0]] = change[1];
  const start = performance.now();
  let answer;
  try {
    const { status, json } = check(policy, bundle);
    answer = `${status} ${json}`;
  } catch (error) {
    answer = `threw ${error}`;
    check = await checker(module);
  }
  const ms = (performance.now() - start).toFixed(3);
  writeAll(`${ms} ${answer}\n`);
}

// All of it, also into a pipe that is full.
function writeAll(text) {
  let bytes = Buffer.from(text);
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(writeSync(1, bytes));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
}
