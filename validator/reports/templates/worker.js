// Runs this project's Python in a worker. Pyodide's code stands above this; the page sends all other parts.
// The worker may not connect to anything, so that what Pyodide would load is taken from these parts.
{
  const HOME = "https://answers.invalid/";
  let ask;

  async function start(parts) {
    globalThis.fetch = async (address) => {
      const name = String(address).slice(HOME.length);
      const type = name.endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
      return new Response(parts[name], { headers: { "Content-Type": type } });
    };
    const python = await globalThis.loadPyodide({ indexURL: HOME, createPyodideModule: _createPyodideModule });
    python.unpackArchive(parts["rules.zip"], "zip", { extractDir: "/rules" });
    python.runPython("import sys; sys.path.insert(0, '/rules')");
    const { ask: found, limits } = python.pyimport("validator.answers.browser");
    ask = (question, first, last, total) =>
      JSON.parse(found(JSON.stringify(question), python.toPy(first), python.toPy(last), total));
    return JSON.parse(limits());
  }

  onmessage = async ({ data }) => {
    try {
      if (data.parts) postMessage({ limits: await start(data.parts) });
      else postMessage({ answer: ask(data.question, data.first, data.last, data.total) });
    } catch (error) {
      // The last line that names an exception; Pyodide may add advice below it.
      const lines = String(error.message ?? error).trim().split("\n");
      const named = lines.findLast((line) => /^[\w.]+(?:Error|Exception|Interrupt)\b/.test(line));
      postMessage({ fault: (named ?? lines.at(-1)).slice(0, 300) });
    }
  };
}
