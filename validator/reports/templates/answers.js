(() => {
  const byId = (id) => document.getElementById(id);
  const answersData = JSON.parse(byId("answers-data").textContent);
  //: Seconds after which an answer is given up. The expressions that read a log can take very long for odd text.
  const LIMIT_S = 60;
  //: Pasted text of more characters is kept aside, because a browser's text field gets slow.
  const FIELD = 200_000;
  const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
  const LOADING = `Loading Python (${megabytes(answersData.size)}, once) …`;
  const UNTOUCHED = `Python answers ${answersData.table ? "the second question, and unusual ones about machines," : "these questions"} in your browser. It is loaded (${megabytes(answersData.size)}) when it is needed.`;
  const tell = (words) => { byId("answers-loading").textContent = words; };
  const unable = (reason) => new Error(`This browser can't run Python here${reason ? ` (${reason})` : ""}. Try \`validator serve\`, or another browser.`);
  const policy = window.trustedTypes?.createPolicy("answers", {
    createScriptURL: (url) => {
      if (!/^answers\/[0-9a-f]{20}\.js$/.test(url) && url !== program) throw new TypeError("not a file of this page");
      return url;
    },
  });
  const trusted = (url) => (policy ? policy.createScriptURL(url) : url);

  // --- the files: each is loaded when somebody chooses a field of the question that needs it -------------------

  const arriving = new Map();
  window.answersPart = (name, parts) => arriving.get(`answers/${name}.js`)(parts);

  // As for the details of cells: a page from disk can load a script, but it can't fetch a file.
  function load(file) {
    return new Promise((resolve, reject) => {
      arriving.set(file, resolve);
      const script = document.createElement("script");
      script.onload = () => script.remove();
      script.onerror = () => {
        script.remove();
        reject(new Error("The files of the answers can't be loaded. If the page was updated, reload it. Otherwise the directory 'answers' next to the page is missing: validator serve shows the page with its answers."));
      };
      script.src = trusted(file);
      document.head.append(script);
    });
  }

  function decoded(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const characters = atob(text), bytes = new Uint8Array(characters.length);
    for (let place = 0; place < bytes.length; place++) bytes[place] = characters.charCodeAt(place);
    return bytes;
  }

  const inflated = (text) => new Response(new Blob([decoded(text)]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();

  // Return the promise of each part of a file, by its name.
  const partsOf = async (file) => Object.fromEntries(Object.entries(await load(file)).map(([name, text]) => [name, inflated(text)]));

  // --- the table: it has the answers to the usual questions about machines ------------------------------------

  let arrived;
  const usual = () => {
    arrived ??= load(answersData.table).then(async (parts) => {
      const found = JSON.parse(new TextDecoder().decode(await inflated(parts["table.json"])));
      // Each number is written as its difference from the one before it.
      for (const [, , columns] of found.nodes) for (const column of columns) for (let place = 1; place < column.length; place++) column[place] += column[place - 1];
      return found;
    });
    arrived.catch(() => { arrived = undefined; });
    return arrived;
  };
  // The GPUs on which something was measured. The table does not know what, so Python answers.
  const measured = new Set(Object.keys(answersData.verdicts).map((cell) => cell.slice(cell.indexOf("@r") + 2).replace(/^[\d.]+-/, "")));

  // Return the name of a GPU, its part of a cell's name, and the group with the same answers.
  function gpuOf({ capabilities, words, noise: [glued, noise] }, text) {
    if (!text) return ["", "", ""];
    if (Object.hasOwn(capabilities, text)) return capabilities[text];
    const without = text.toLowerCase().replace(/[^a-z0-9]+/g, " ").replace(RegExp(glued, "g"), " ").replace(RegExp(noise, "g"), " ");
    const plain = without.split(" ").filter(Boolean).join(" ");
    return Object.hasOwn(words, plain) ? words[plain] : undefined;
  }

  // Return the row of a driver, and how sentences name it: itself, its branch, and the number that its own release begins with.
  function driverOf({ cuda, drivers, since, measured }, text, kind) {
    if (!text) return { row: "" };
    if (Object.hasOwn(cuda[kind], text)) {
      const branch = cuda[kind][text];
      return { row: `${branch}`, driver: branch, branch, number: branch, said: `CUDA ${text} in nvidia-smi, so driver R${branch}` };
    }
    const [, driver, number, first, second] = /^[Rr]?((\d{3})(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?)$/.exec(text) ?? [];
    const branch = drivers.findLast((row) => row && +row <= number);
    if (!branch || measured.includes(driver) || number - branch > (kind === "windows" ? 5 : 0)) return undefined;
    const found = { row: branch, driver, branch, number, said: `driver ${driver}` };
    if (driver === branch) return found;
    const oldest = [...(since[kind][branch] ?? "999").split(".").map(Number), -1];
    const own = [+number, first === undefined ? Infinity : +first, second === undefined ? -1 : +second];
    const place = own.findIndex((each, index) => each !== oldest[index]);
    if (place >= 0 && own[place] < oldest[place]) return undefined;
    return { ...found, row: drivers.find((row) => row.startsWith(`${branch}.`)) ?? branch };
  }

  // Return the answer to a question; undefined if the table does not have it.
  async function tabled({ kind, gpu, driver, system, machine, python: version }) {
    if (kind !== "works" || !answersData.table || ![gpu, driver].every((text) => /^[ -~]*$/.test(text))) return undefined;
    const found = await usual();
    const pullable = answersData.pullable && machine === "x86_64" && ["linux", "wsl2"].includes(system);
    const known = gpuOf(found, gpu.trim()), installed = driverOf(found, driver.trim(), ["windows", "wsl2"].includes(system) ? "windows" : "linux");
    // An answer says which driver branches have ended.
    if (new Date().toISOString().slice(0, 7) > found.until || pullable || !known || !installed || measured.has(known[1])) return undefined;
    const [name, label, group] = known;
    const places = [[found.systems, `${system} ${machine}`], [found.groups, group], [found.drivers, installed.row], [found.pythons, version]];
    const root = places.reduce((sum, [all, one]) => (all.includes(one) ? sum * all.length + all.indexOf(one) : NaN), 0);
    const marks = [name && `${name}, `, label, installed.said, installed.driver, installed.branch, installed.number];
    const expanded = (number) => {
      if (number >= 0) return typeof found.texts[number] === "string" ? found.texts[number].replace(/[\ue000-\ue005]/g, (mark) => marks[mark.charCodeAt() - 0xe000]) : found.texts[number];
      let place = -1 - number;
      const [kind, , columns] = found.nodes.find(([, size]) => (place < size ? true : (place -= size, false)));
      const values = columns.map((column) => expanded(column[place]));
      return kind ? Object.fromEntries(values.map((value, member) => [found.kinds[kind - 1][member], value])) : values;
    };
    return found.roots[root] ? expanded(found.roots[root]) : undefined;
  }

  // --- Python: it answers all other questions -------------------------------------------------------------------

  // The address of the worker's program, and the promise of what it needs besides. Both are kept for the next worker.
  let program, loading;
  function parts() {
    loading ??= Promise.all(answersData.files.map(partsOf)).then(async (files) => {
      const { "pyodide.js": pyodide, "worker.js": worker, "pyodide.asm.wasm": wasm, ...others } = Object.assign({}, ...files);
      const compiled = wasm.then(WebAssembly.compile).catch((error) => { throw unable(error.message); });
      const entries = Object.entries({ "pyodide.asm.wasm": compiled, ...others });
      const rest = Promise.all(entries.map(async ([name, part]) => [name, await part])).then(Object.fromEntries);
      rest.catch(() => {});
      // A worker that is made of a blob has the policy of this page, which forbids connections.
      program = URL.createObjectURL(new Blob([await pyodide, await worker], { type: "text/javascript" }));
      return { rest };
    }).catch((error) => {
      loading = undefined;
      throw error;
    });
    return loading;
  }

  // The interpreter, once it is there, and the promise of it from the time when it is asked for.
  let running, starting;
  class Python {
    ready = false;
    limits = undefined;
    constructor() {
      this.worker = new Worker(trusted(program));
    }
    // Send a message and return the answer to it. There is one at a time.
    send(message, seconds) {
      return new Promise((resolve, reject) => {
        const end = (error) => {
          this.stop();
          reject(error);
        };
        const timer = setTimeout(() => end(new Error(`There was no answer within ${seconds} seconds, so it was stopped. ${message.question?.kind === "why" ? "Try only the part of the text around the first error, or `validator doctor LOG`, which is faster." : "Try again."}`)), seconds * 1000);
        this.cancel = () => end(new DOMException("cancelled", "AbortError"));
        this.worker.onmessage = ({ data: reply }) => {
          clearTimeout(timer);
          if (reply.fault === undefined) resolve(reply);
          else end(new Error(`Python stopped with an error: ${reply.fault}`));
        };
        this.worker.onerror = (event) => {
          clearTimeout(timer);
          end(unable(event.message));
        };
        this.worker.postMessage(message);
      });
    }
    stop() {
      this.worker.terminate();
      if (running !== this) return;
      running = starting = undefined;
      tell(UNTOUCHED);
    }
  }

  function python() {
    starting ??= launched().catch((error) => {
      running?.stop();
      starting = undefined;
      tell(UNTOUCHED);
      throw error;
    });
    return starting;
  }

  async function launched() {
    if (lacks.length) throw unable(`it lacks ${lacks.join(" and ")}`);
    tell(LOADING);
    const { rest } = await parts();
    running = new Python();
    const made = running;
    await made.send({ parts: await rest }, 2 * LIMIT_S);
    made.ready = true;
    tell("Python is loaded.");
    return made;
  }

  // Questions wait for each other.
  let last = Promise.resolve();
  function ask(question, text, onProgress) {
    const answer = last.then(async () => {
      if (!running?.ready) onProgress(LOADING);
      const interpreter = await python();
      const message = { question, first: new Uint8Array(), last: new Uint8Array(), total: 0 };
      if (text) {
        interpreter.limits ??= (await interpreter.send({}, LIMIT_S)).limits;
        const { whole, each } = interpreter.limits;
        const bytes = async (from, to) => new Uint8Array(await text.slice(from, to).arrayBuffer());
        message.total = text.size;
        message.first = await bytes(0, text.size <= whole ? whole : each);
        if (text.size > whole) message.last = await bytes(text.size - each, text.size);
        onProgress(text.size <= whole ? "Reading …" : `Reading the first and the last ${each >> 20} MiB of ${text.size >> 20} MiB …`);
      } else {
        onProgress("Comparing releases …");
      }
      const { answer } = await interpreter.send(message, LIMIT_S);
      tell("");
      return answer;
    });
    last = answer.catch(() => {});
    return answer;
  }

  // --- the two forms --------------------------------------------------------------------------------------

  // Answer each submission of a form, with `questionOf` to read it and `show` to make the elements of the answer.
  function connect(name, questionOf, show) {
    const form = byId(name), place = byId(`${name}-answer`), status = byId(`${name}-status`);
    const submit = form.querySelector("[type=submit]");
    let number = 0;
    // Screen readers announce the words of the status. They are empty if the content says everything.
    const say = (words, kind, ...content) => {
      status.className = kind;
      // A rejected field is described by these words, not by the status, whose label would be read instead of them.
      status.replaceChildren(...(words ? [element("span", { id: `${name}-words` }, ...coded(words))] : []));
      // The status stays where it is: a screen reader may miss a change while it is moved.
      for (const old of [...place.children]) if (old !== status) old.remove();
      place.append(...content.filter(Boolean));
      place.classList.add("shown");
      // On a narrow screen, the answer is below what is visible.
      place.scrollIntoView({ block: "nearest" });
    };
    const progress = (mine) => (words) => {
      if (mine !== number) return;
      const stop = button(`${name}-stop`, "Stop", () => {
        running?.cancel?.();
        submit.focus();
      });
      say(words, "busy", stop);
    };
    // A field that has to be changed, and the message that says why, belong together until somebody changes it.
    const helps = new Map([...form.elements].map((field) => [field, field.getAttribute("aria-describedby")]));
    const reject = (field) => {
      field.setAttribute("aria-invalid", "true");
      field.setAttribute("aria-describedby", [`${name}-words`, helps.get(field)].filter(Boolean).join(" "));
    };
    const accept = (field) => {
      field.removeAttribute("aria-invalid");
      if (helps.get(field)) field.setAttribute("aria-describedby", helps.get(field));
      else field.removeAttribute("aria-describedby");
    };
    form.addEventListener("input", ({ target }) => accept(target));
    form.hidden = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (submit.getAttribute("aria-disabled") === "true") return;
      const mine = ++number;
      const fault = ({ message, hint, field, nearest }) => {
        const words = `${message}${hint ? `; ${hint}` : ""}.`;
        say(words, "notice", suggestions(form, nearest));
        if (field && !form.elements[field].disabled) reject(form.elements[field]);
      };
      [...helps.keys()].forEach(accept);
      const asked = questionOf();
      if (asked.error) {
        fault(asked.error);
        return;
      }
      submit.setAttribute("aria-disabled", "true");
      const asking = document.activeElement;
      try {
        const answer = (await tabled(asked.question)) ?? (await ask(asked.question, asked.text, progress(mine)));
        if (answer.error) fault(answer.error);
        else {
          // The focus moves to the answer, unless the reader has moved it elsewhere in the meantime.
          const waiting = [asking, document.body].includes(document.activeElement) || place.contains(document.activeElement);
          const content = show(answer);
          // The focus announces the headline, otherwise the status does, which is hidden then.
          say(waiting ? "" : content[0].textContent, waiting ? "" : "hidden", ...content);
          if (waiting) place.querySelector("h3").focus();
        }
      } catch (error) {
        if (error.name === "AbortError") say("Stopped.", "quiet");
        else say(error.message, "notice");
      } finally {
        submit.removeAttribute("aria-disabled");
      }
    });
  }

  function suggestions(form, nearest) {
    if (!nearest?.length) return "";
    return element("div", { class: "nearest" }, ...nearest.map((name) => button(`nearest-${name}`, name, () => {
      form.elements.gpu.value = name;
      // This button goes away, and the focus moves from the field to the answer.
      form.elements.gpu.focus();
      form.requestSubmit();
    })));
  }

  // Show what is between backticks as code.
  const coded = (text) => text.split(/`([^`]+)`/).map((part, place) => (place % 2 ? element("code", {}, part) : part));
  const headed = (outcome, text) => element("h3", { class: `result ${outcome}`, tabindex: "-1" }, text);
  const reason = ({ outcome, text, fact, source }) => element("li", {},
    element("p", {}, element("span", { class: `predicted ${outcome}` }, outcome), `: ${text}`),
    fact ? element("p", { class: "source" }, `${fact}: `, linked(source)) : "");
  const reasons = (found) => element("ul", { class: "reasons" }, ...found.map(reason));
  const details = (summary, ...content) => element("details", {}, element("summary", {}, summary), ...content);
  const table = (label, head, rows) => element("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": label },
    element("table", {},
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...rows)));

  // --- What works on my GPU and driver? ---------------------------------------------------------------------

  function worksQuestion() {
    const { gpu, driver, system, python: version } = byId("works").elements;
    const [name, machine] = system.value.split(" ");
    return {
      question: {
        kind: "works", gpu: gpu.value, driver: driver.value, system: name, machine, python: version.value,
        registry: answersData.registry, images: answersData.images, verdicts: answersData.verdicts,
      },
    };
  }

  // A link to an answer has the question in the fragment, which a browser does not send. The text of the other question is never in it.
  const LINK = "works";
  const linkOf = () => ["gpu", "driver", "system", "python"].map((name) => byId("works").elements[name].value.replaceAll("*", " ").trim()).join("*");

  function link() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    wanted.set(LINK, linkOf());
    history.replaceState(null, "", `#${wanted}`);
  }

  function askLinked() {
    const wanted = new URLSearchParams(location.hash.slice(1)).get(LINK);
    if (!wanted || wanted === linkOf()) return;
    const form = byId("works"), fields = ["gpu", "driver", "system", "python"].map((name) => form.elements[name]);
    const values = wanted.split("*");
    fields.forEach((field, place) => {
      field.value = values[place] ?? "";
      if (field.selectedIndex === -1) field.selectedIndex = 0;
    });
    form.requestSubmit();
  }

  const MODES = { eager: "Eager operations", xla: "Functions compiled by XLA" };
  const WAYS = { image: "In a container image", pip: "With pip" };
  const HOW = { image: "in an image", pip: "with pip" };

  function showWorks(answer) {
    const newest = answer.releases[0];
    link();
    const share = button("works-link", "Copy a link to this answer", () => copy(share, location.href, share));
    return [
      headed(answer.outcome, answer.headline),
      ...answer.remarks.map((remark) => element("p", { class: "remark" }, ...coded(remark))),
      element("p", {}, answer.basis),
      element("p", { class: "quiet" }, `For ${answer.machine.join(", ")}.`),
      element("dl", { class: "modes" }, ...answer.modes.map(({ mode, outcome, shown }) =>
        element("div", { class: outcome }, element("dt", {}, MODES[mode]), element("dd", {}, shown)))),
      ...answer.ways.map(way),
      ...(answer.refuted.length ? [element("h4", {}, "Images that do not work here"), element("ul", {}, ...answer.refuted.map((each) =>
        element("li", {}, `TensorFlow ${each.release} with ${each.name}: `, measurement(each), ".")))] : []),
      ...(answer.ways.length ? [] : [element("h4", {}, `Why TensorFlow ${newest.release} does not work`), reasons(newest.reasons)]),
      element("p", {}, share),
      details(`All ${answer.releases.length} releases`,
        element("p", { class: "quiet with-touch" }, "Swipe to the side for more columns."),
        table("All releases", ["TensorFlow", "CUDA/cuDNN", "Image", "pip", "Python", "Why not"], answer.releases.map(releaseRow))),
    ];
  }

  function way(found, index) {
    const only = found.modes === "eager-only" ? ", only for eager operations" : "";
    return element("div", {},
      element("h4", {}, `${WAYS[found.way]}: TensorFlow ${found.release}${found.python ? `, Python ${found.python}` : ""}${only}`),
      ...found.notes.map((note) => element("p", {}, ...coded(note))),
      found.commands.length ? command(`${found.way}-${index}`, found.commands.join("\n")) : "",
      found.verdict ? element("p", {}, "Measured on this class of machines: ", measurement(found), ".") : "",
      found.measured ? element("p", {}, `Measured on ${found.measured}.`) : "",
      details(`Why this is predicted for ${found.release} ${HOW[found.way]}`, reasons(found.reasons)),
      ...(found.newer.length ? [details(`Why no newer release than ${found.release} ${HOW[found.way]}`, ...found.newer.map((group) =>
        element("div", {}, element("h5", {}, group.releases), reasons(group.reasons))))] : []));
  }

  const measurement = ({ cell, verdict }) =>
    element("a", { href: `#cell=${encodeURIComponent(cell)}` }, element("span", { class: `measured ${verdict}` }, verdict));

  function releaseRow(release) {
    const word = (text) => element("span", { class: `predicted ${text}` }, text);
    const outcomes = (found) => {
      if (!found) return ["none"];
      return found.eager === found.xla ? [word(found.eager)] : ["eager ", word(found.eager), ", XLA ", word(found.xla)];
    };
    const needs = release.needs.length ? ` with ${release.needs.join(", ")}` : "";
    return element("tr", {},
      element("th", { scope: "row" }, release.release),
      element("td", {}, `${release.cuda}/${release.cudnn}`),
      element("td", {}, ...outcomes(release.image)),
      element("td", {}, ...outcomes(release.pip), needs),
      element("td", {}, release.pythons),
      element("td", { class: "why" }, ...whyNot(release)));
  }

  // Return the deciding reason against each way of getting a release; only one if both are the same.
  function whyNot({ image, reasons: [own], pip_reasons: [pip] }) {
    if (!image || own?.text === pip?.text) return [pip?.text];
    return [own && element("div", {}, `Image: ${own.text}`), pip && element("div", {}, `pip: ${pip.text}`)];
  }

  // --- Why is my GPU not used? --------------------------------------------------------------------------------

  let held;
  function hold(blob, name) {
    held = blob && { blob, name };
    const line = byId("why-file"), field = byId("why").elements.text, status = byId("why-status");
    line.hidden = !held;
    field.disabled = Boolean(held);
    line.replaceChildren();
    status.replaceChildren();
    status.className = "";
    // What was wrong with the field was about its old text.
    field.dispatchEvent(new Event("input", { bubbles: true }));
    if (!held) return;
    line.append(element("span", {}, `${name} (${megabytes(blob.size)})`), button("why-remove", "Remove", () => {
      hold();
      field.focus();
    }));
    // The name is visible already.
    status.className = "hidden";
    status.textContent = `${name} is ready.`;
  }

  function whyQuestion() {
    const text = held?.blob ?? new Blob([byId("why").elements.text.value]);
    if (!text.size) return { error: { message: "Paste what TensorFlow printed, starting with the lines of its import, or choose a file", field: "text" } };
    return { question: { kind: "why", name: held?.name ?? "the text" }, text };
  }

  const COUNT = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const evidence = (entries, most) => [
    ...entries.slice(0, most).map((entry) => element("pre", { class: "evidence", tabindex: "0" },
      element("b", {}, `${entry.where}${entry.count > 1 ? ` (${entry.count} times)` : ""}: `), entry.text)),
    entries.length > most ? element("p", { class: "quiet" }, `And ${entries.length - most} more.`) : "",
  ];

  function showWhy({ diagnosis, words }) {
    const { causes, unknown, harmless } = diagnosis;
    const headline = causes.length > 1 ? `${causes.length} causes, in the order to fix them.` : causes.length ? words.headlines[0] : words.headline;
    const outcome = causes.length ? "fails" : ["gpu_used", "no_fault"].includes(diagnosis.answer) ? "works" : "unknown";
    return [
      headed(outcome, headline),
      ...causes.map((cause, index) => causeOf(cause, words, index, causes.length > 1)),
      diagnosis.works ? element("p", {}, ...coded(diagnosis.works)) : "",
      words.missing.length ? element("p", {}, `Not known: ${words.missing.join(", ")}.`) : "",
      ...(unknown.length ? [element("h4", {}, "Not recognized"), ...evidence(unknown, 10)] : []),
      ...(harmless.length ? [details(`Harmless: ${COUNT(harmless.length, "message")}`, ...harmless.map((entry) =>
        element("p", {}, element("code", {}, entry.code), ` (${COUNT(entry.evidence.reduce((sum, each) => sum + each.count, 0), "line")}): `, ...coded(entry.says))))] : []),
      element("p", { class: "quiet" }, `Read: ${[diagnosis.read, words.facts.join(", ")].filter(Boolean).join("; ")}.`),
      element("p", {}, ...coded(`Next: ${diagnosis.next_step}${diagnosis.next_command ? ":" : "."}`)),
      diagnosis.next_command ? command("why-next", diagnosis.next_command) : "",
    ];
  }

  // Commands that interrupt people are copied one at a time, so that nobody pastes a reboot along with another.
  const blocks = ({ commands, interrupts }) => (interrupts || !commands.length ? commands : [commands.join("\n")]);

  function causeOf(cause, words, index, several) {
    // With several causes, the headline of the answer counts them, and each cause has a headline of its own.
    const part = several ? "h5" : "h4";
    const own = several ? ` of cause ${index + 1}` : "";
    return element("div", { class: "cause" },
      several ? element("h4", { class: "result fails" }, `${index + 1}. ${words.headlines[index]}`) : "",
      element("p", {}, ...coded(cause.means)),
      element(part, {}, "Evidence"),
      ...evidence(cause.evidence, 5),
      ...cause.reasons.map((each) => element("p", {}, `${each.text} (${each.fact}).`)),
      cause.explains.length ? element("p", {}, `This also explains ${cause.explains.join(", ")}.`) : "",
      element(part, {}, "How to fix it"),
      ...cause.remedies.flatMap((remedy, number) => [
        element("p", {}, words.ways[index][number] ? element("strong", {}, `${words.ways[index][number]}: `) : "", ...coded(remedy.says)),
        ...blocks(remedy).map((text, block) => command(`fix-${index}-${number}-${block}`, text)),
      ]),
      element("p", { class: "quiet" }, "Name of this cause: ", element("code", {}, cause.code)),
      cause.sources.length ? details(`Sources${own}`, element("ul", {}, ...cause.sources.map((source) => element("li", { class: "source" }, linked(source))))) : "");
  }

  // --- start --------------------------------------------------------------------------------------------

  byId("answers-no-script").hidden = true;
  const lacks = Object.entries({
    WebAssembly: typeof WebAssembly === "object", "web workers": "Worker" in window, "decompression (DecompressionStream)": "DecompressionStream" in window,
  }).filter(([, there]) => !there).map(([name]) => name);
  const answersUsual = answersData.table && "DecompressionStream" in window;
  if (lacks.length) {
    byId("answers-missing").hidden = false;
    byId("answers-missing").textContent = `This browser lacks ${lacks.join(" and ")}, so this page ${answersUsual ? "answers only the usual questions about machines" : "can't answer questions"}. In a terminal, validator predict and validator doctor answer them. The matrix below works.`;
  }
  if (lacks.length && !answersUsual) return;
  connect("works", worksQuestion, showWorks);
  const works = byId("works");
  works.closest(".ask").addEventListener("focusin", () => (answersData.table ? usual() : python()).catch(() => {}));
  window.addEventListener("hashchange", askLinked);
  askLinked();
  if (lacks.length) {
    byId("why").closest(".ask").hidden = true;
    return;
  }
  connect("why", whyQuestion, showWhy);
  tell(UNTOUCHED);
  // Whoever chooses the field is about to ask, so load Python early. An error is shown only when the question is asked.
  const begin = () => { python().catch(() => {}); };
  byId("why").closest(".ask").addEventListener("focusin", begin);
  const card = byId("why").closest(".ask"), field = byId("why").elements.text, input = byId("why-input");
  byId("why-choose").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    if (input.files.length) hold(input.files[0], input.files[0].name);
    input.value = "";
    byId("why").querySelector("[type=submit]").focus();
  });
  field.addEventListener("paste", (event) => {
    const text = event.clipboardData.getData("text/plain");
    if (text.length <= FIELD) return;
    event.preventDefault();
    hold(new Blob([text]), "The pasted text");
  });
  const dragging = (event, over) => {
    event.preventDefault();
    begin();
    card.classList.toggle("dragging", over);
  };
  card.addEventListener("dragover", (event) => dragging(event, true));
  card.addEventListener("dragleave", (event) => dragging(event, false));
  card.addEventListener("drop", (event) => {
    dragging(event, false);
    const [file] = event.dataTransfer.files, text = event.dataTransfer.getData("text/plain");
    if (file) hold(file, file.name);
    else if (text) hold(new Blob([text]), "The dropped text");
  });
})();
