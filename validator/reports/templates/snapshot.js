// Writes Python's memory after it has imported this project's modules and answered one question of each kind, so that
// the page need not do that. Node.js runs it while the page is made; `begin` is called below with the parts.
const { inflateSync, deflateSync } = require("node:zlib"), { writeFileSync } = require("node:fs");
const system = process, HOME = "https://answers.invalid/", PLACE = "/rules/";
const WARM = `
# The last three are imported only when they are needed, and the page has no files to import from.
import gc, importlib, json, pathlib, sys, html, encodings.utf_16_be, encodings.utf_16_le
sys.path.insert(0, "${PLACE}")
for path in sorted(pathlib.Path("${PLACE}").rglob("*.py")):
    importlib.import_module(".".join(path.relative_to("${PLACE}").with_suffix("").parts).removesuffix(".__init__"))
from validator.answers import ask, limits
limits()
# No question names a driver: what is said about one may depend on the day, and would be kept.
ask(json.dumps({"kind": "works", "gpu": "RTX 4090", "driver": "", "system": "linux", "machine": "x86_64",
                "python": "3.12", "registry": None, "images": {}, "verdicts": {}}))
log = b"""2026-01-01 00:00:00.000000: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to cuInit
Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file
tensorflow  2.18.1
"""
ask(json.dumps({"kind": "why", "name": "log"}), log, b"", len(log))
from validator.diagnosis import likeness
likeness.content()
gc.collect()
`;

async function make(encoded) {
  const part = (name) => inflateSync(Buffer.from(encoded[name], "base64"));
  // Pyodide starts here as in a worker of a browser, and the same parts give the same bytes.
  delete globalThis.process;
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope = class { static [Symbol.hasInstance]() { return true; } };
  globalThis.location = new URL(HOME);
  Date.now = performance.now = () => 0;
  Object.defineProperty(globalThis, "crypto", { value: { getRandomValues: (array) => array.fill(0) } });
  globalThis.fetch = async (address) => new Response(part(String(address).slice(HOME.length)));
  WebAssembly.instantiateStreaming = async (loaded, imports) => WebAssembly.instantiate(await (await loaded).arrayBuffer(), imports);
  (0, eval)(part("pyodide.js").toString());
  const python = await globalThis.loadPyodide({
    indexURL: HOME, createPyodideModule: globalThis._createPyodideModule, env: { PYTHONHASHSEED: "0", PYTHONOPTIMIZE: "2" }, _makeSnapshot: true,
  });
  for (const [path, text] of Object.entries(JSON.parse(part("rules.json").toString()))) {
    const file = PLACE + path;
    python.FS.mkdirTree(file.slice(0, file.lastIndexOf("/")));
    python.FS.writeFile(file, text);
  }
  python.runPython(WARM);
  writeFileSync(system.argv[2], deflateSync(python.makeMemorySnapshot(), { level: 9 }));
}

const begin = (parts) => make(parts).then(() => system.exit(0), (error) => {
  // The last line names the exception of Python.
  system.stderr.write(`${String(error.message ?? error).trim()}\n`, () => system.exit(1));
});
