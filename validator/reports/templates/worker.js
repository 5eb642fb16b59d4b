// Runs this project's Python in a worker. Pyodide's code stands above this; the page sends all other parts.
// The worker may not connect to anything, so that what Pyodide would load is taken from these parts.
{
  const HOME = "https://answers.invalid/";
  let ask, limits;

  async function start({ "pyodide.asm.wasm": compiled, snapshot, ...parts }) {
    globalThis.fetch = async (address) => {
      const name = String(address).slice(HOME.length);
      return name.endsWith(".wasm") ? compiled : new Response(parts[name]);
    };
    WebAssembly.instantiateStreaming = async (loaded, imports) => {
      const module = await loaded;
      const instance = await WebAssembly.instantiate(module, imports);
      // A new instance has less memory than the snapshot that is copied into it.
      const lacking = Math.ceil((snapshot.byteLength - instance.exports.memory.buffer.byteLength) / 65536);
      if (lacking > 0) instance.exports.memory.grow(lacking);
      return { module, instance };
    };
    const python = await globalThis.loadPyodide({ indexURL: HOME, createPyodideModule: _createPyodideModule, _loadSnapshot: snapshot });
    const found = python.pyimport("validator.answers");
    ask = (question, first, last, total) =>
      JSON.parse(found.ask(JSON.stringify(question), python.toPy(first), python.toPy(last), total));
    limits = () => JSON.parse(found.limits());
  }

  onmessage = async ({ data }) => {
    try {
      if (data.parts) {
        await start(data.parts);
        postMessage({});
      } else if (data.question) postMessage({ answer: ask(data.question, data.first, data.last, data.total) });
      else postMessage({ limits: limits() });
    } catch (error) {
      // The last line that names an exception; Pyodide may add advice below it.
      const lines = String(error.message ?? error).trim().split("\n");
      const named = lines.findLast((line) => /^[\w.]+(?:Error|Exception|Interrupt)\b/.test(line));
      const fault = named ?? lines.at(-1);
      postMessage({ fault: fault.length <= 300 ? fault : `${fault.slice(0, 299)}…` });
    }
  };
}
