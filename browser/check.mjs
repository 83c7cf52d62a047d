// The page's side of the module: checks a bundle, or an opened step, in a page, in a worker or under node.
//
//   const module = await WebAssembly.compileStreaming(fetch("browser.wasm"));
//   const check = await checker(module);
//   const { status, json } = check(policy, bundle);

// A function that checks bundles, from a compiled module.
//
// It takes a policy, as the text of a policy file or as JSON text (`log_key`, `predictor_keys`, and `device_keys` and
// `verdict_keys` where there are any), and a bundle's bytes, or an opened step's. It gives `client verify --json`'s text and exit status: 0 agreeing, 1 not so, 2 could not be checked.
// A policy that is not usable, or too long a bundle, is 2 with `error` in place of a report.
//
// Memory that a module once had it keeps; let go of the function after a large bundle. If it throws (the memory is at an
// end), nothing was found out, and another has to be made.
export async function checker(module) {
  const { exports } = await WebAssembly.instantiate(module, {});
  return function check(policy, bundle) {
    const keys = new TextEncoder().encode(policy);
    const at = exports.tally_input(keys.length + bundle.length) >>> 0;
    if (at === 0) throw new RangeError(`no memory for a bundle of ${bundle.length} bytes`);
    const room = new Uint8Array(exports.memory.buffer, at, keys.length + bundle.length);
    room.set(keys);
    room.set(bundle, keys.length);
    const status = exports.tally_check(keys.length);
    // Of the memory as it is now: checking may have made it larger, and then the old view is of nothing.
    const answer = new Uint8Array(exports.memory.buffer, exports.tally_output() >>> 0, exports.tally_output_bytes());
    return { status, json: new TextDecoder().decode(answer) };
  };
}
