// What `serve` adds: the progress of running measurements, and a word when there are new results.
(() => {
  const section = document.getElementById("live"), runs = document.getElementById("live-runs"), news = document.getElementById("live-news");
  const STATES = {
    running: "is running", finished: "has finished", stopped: "was stopped before it was done", failed: "ended with an error",
    vanished: "was killed before it was done", unknown: "has not reported for a while",
  };
  const PHASES = { lock: "resolving packages", build: "building", push: "pushing", pull: "pulling", probe: "measuring" };
  const fullName = (image) => data.images.find((each) => each.id === image)?.name ?? image;
  const time = (text) => new Date(text).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  const images = (number) => `${number} image${number === 1 ? "" : "s"}`;

  // Announce a sentence once: a screen reader reads out every change of it.
  function say(text, ...more) {
    if (news.dataset.text === text) return;
    news.dataset.text = text;
    news.replaceChildren(...(text ? [text, ...more] : []));
  }

  let page = section.dataset.version, trouble = "", connected = true;
  function tell() {
    if (page !== section.dataset.version) {
      say("There are new results. ", button("reload", "Reload the page", () => location.reload()));
    } else if (!connected) {
      say("The connection to the server is lost. The page tries again by itself.");
    } else {
      say(trouble);
    }
  }

  function show(found) {
    if (!found.length) {
      runs.replaceChildren(element("p", { class: "quiet" }, "Nothing is running. Start ",
        element("code", {}, "validator build-matrix"), " to see its progress here."));
      return;
    }
    const open = new Set([...runs.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    runs.replaceChildren(...found.map((run) => run.state === "running" ? running(run, open) : ended(run, open)));
  }

  function running(run, open) {
    const id = `run-${run.started}`;
    return element("div", { class: "live-run" },
      element("p", { id }, `build-matrix with the profile ${run.profile}: ${run.finished} of ${images(run.total)} done. It began at ${time(run.started)}.`),
      element("progress", { max: run.total || 1, value: run.finished, "aria-labelledby": id }),
      element("ul", { class: "live-working" }, ...run.working.map((each) =>
        element("li", {}, element("strong", {}, fullName(each.image)), `: ${PHASES[each.phase] ?? each.phase} since ${time(each.since)} `, element("span", { class: "quiet" }, each.detail)))),
      results(run, open));
  }

  function ended(run, open) {
    return element("div", { class: "live-run" },
      element("p", {}, `build-matrix with the profile ${run.profile} ${STATES[run.state] ?? STATES.unknown}: ${run.finished} of ${images(run.total)} done at ${time(run.updated)}.`),
      results(run, open));
  }

  function results(run, open) {
    if (!run.done.length) return null;
    return element("details", { "data-key": run.started, open: open.has(run.started) },
      element("summary", {}, `Results of ${images(run.done.length)}`),
      element("ul", {}, ...run.done.map((each) => element("li", {}, element("strong", {}, fullName(each.image)), `: ${each.result}`,
        each.detail ? element("span", { class: "quiet" }, ` (${each.detail})`) : null))));
  }

  const source = new EventSource("events");
  source.addEventListener("open", () => {
    connected = true;
    tell();
  });
  source.addEventListener("error", () => {
    connected = false;
    tell();
  });
  source.addEventListener("progress", (event) => show(JSON.parse(event.data)));
  source.addEventListener("page", (event) => {
    page = JSON.parse(event.data);
    tell();
  });
  source.addEventListener("trouble", (event) => {
    trouble = JSON.parse(event.data);
    tell();
  });
  addEventListener("pagehide", () => source.close());
})();
