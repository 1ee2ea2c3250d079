// Plays one or two runs of the simulator on one scrubber. The runs are those of this report, or of
// files that the reader opens; files are read here, and are not sent anywhere.
// @ts-check

/**
 * @typedef {{ id: string[], type: string[], arrival_s: number[], start_s: (number | null)[], end_s: (number | null)[] }} Jobs
 * @typedef {{ row: number[], lane: number[], job: number[], start_s: number[], end_s: number[], held_s: number[], leases: number[], of: number[], reason: string[] }} Bars
 * @typedef {Record<string, (number | null)[]> & { time_s: number[] }} Moments
 * @typedef {{ policy: string, trace: string, cluster: string, round_length_s: number, has_rounds: boolean, end_s: number, note: string, workers: string[], worker_count: number, jobs: Jobs, bars: Bars, moments: Moments }} Run
 */

const FORMAT = "leasehold runs 1";
const MOST_RUNS = 50;
const MOST_BYTES = 64e6;
const MOST_ROWS = 100_000;
// More jobs may be followed; a list of them all is slow to open.
const MOST_PROPOSED = 500;
// The colours of jobs in the style sheet.
const COLOURS = 9;
// The whole run plays in this time.
const PLAY_MS = 30_000;
const SVG = "http://www.w3.org/2000/svg";

// ---- reading --------------------------------------------------------------------------------------

/** @param {unknown} value @param {string} name @returns {Record<string, unknown>} */
function fields(value, name) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new Error(`${name} is missing`);
  return /** @type {Record<string, unknown>} */ (value);
}

/** @param {unknown} value @param {string} name */
function text(value, name) {
  if (typeof value !== "string") throw new Error(`${name} is not a text`);
  return value;
}

/** @param {unknown} value @param {string} name */
function number(value, name) {
  if (typeof value !== "number" || value < 0 || !Number.isFinite(value)) throw new Error(`${name} is not a number of at least 0`);
  return value;
}

/** A whole number from `least` to `most`. @param {number} least @param {number} [most] */
const whole = (least, most = MOST_ROWS) => (/** @type {unknown} */ value, /** @type {string} */ name) => {
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) throw new Error(`${name} is not a whole number from ${least} to ${most}`);
  return value;
};

/**
 * The column `key` of a table, whose columns have one length.
 * @template T
 * @param {Record<string, unknown>} table @param {string} name @param {string} key
 * @param {(value: unknown, name: string) => T} read @param {number} [length]
 */
function column(table, name, key, read, length) {
  const values = table[key];
  if (!Array.isArray(values) || values.length > MOST_ROWS || values.length !== (length ?? values.length)) throw new Error(`${name}.${key} is not a list as long as the others`);
  return values.map((value, i) => read(value, `${name}.${key}[${i}]`));
}

/** @param {unknown} value @param {string} name */
const maybe = (value, name) => (value === null ? null : number(value, name));

/** @param {unknown} value @returns {Jobs} */
function readJobs(value) {
  const table = fields(value, "jobs");
  const id = column(table, "jobs", "id", text);
  const numbers = (/** @type {string} */ key) => column(table, "jobs", key, maybe, id.length);
  return {
    id,
    type: column(table, "jobs", "type", text, id.length),
    arrival_s: column(table, "jobs", "arrival_s", number, id.length),
    start_s: numbers("start_s"),
    end_s: numbers("end_s"),
  };
}

/** @param {unknown} value @param {number} rows @param {number} jobs @returns {Bars} */
function readBars(value, rows, jobs) {
  const table = fields(value, "bars");
  const reason = column(table, "bars", "reason", text);
  const numbers = (/** @type {string} */ key, read = number) => column(table, "bars", key, read, reason.length);
  return {
    row: numbers("row", whole(0, rows - 1)),
    lane: numbers("lane", whole(-1)),
    job: numbers("job", whole(0, jobs - 1)),
    start_s: numbers("start_s"),
    end_s: numbers("end_s"),
    held_s: numbers("held_s"),
    leases: numbers("leases"),
    of: numbers("of"),
    reason,
  };
}

/** @param {unknown} value @returns {Moments} */
function readMoments(value) {
  const table = fields(value, "moments");
  const time_s = column(table, "moments", "time_s", number);
  const found = FIGURES.map(({ key }) => [key, column(table, "moments", key, maybe, time_s.length)]);
  return { ...Object.fromEntries(found), arrived: column(table, "moments", "arrived", maybe, time_s.length), time_s };
}

/** @param {unknown} value @param {number} most the most runs there may be @returns {Run[]} */
function readRuns(value, most) {
  const document = fields(value, "the object");
  if (document.format !== FORMAT) throw new Error(`its format is not "${FORMAT}": choose a file runs.json`);
  if (!Array.isArray(document.runs) || !document.runs.length) throw new Error("runs is not a list of at least 1 run");
  if (document.runs.length > most) throw new Error(`runs has ${document.runs.length} runs, and ${most} more may be opened (${MOST_RUNS} in all): reload the page to start again`);
  return document.runs.map((one) => {
    const run = fields(one, "a run");
    const workers = column(run, "run", "workers", text);
    const jobs = readJobs(run.jobs);
    const end_s = Math.max(number(run.end_s, "end_s"), 1);
    return {
      policy: text(run.policy, "policy"),
      trace: text(run.trace, "trace"),
      cluster: text(run.cluster, "cluster"),
      round_length_s: maybe(run.round_length_s, "round_length_s") || end_s / 5000,
      has_rounds: Boolean(run.round_length_s),
      end_s,
      note: text(run.note, "note"),
      workers,
      worker_count: number(run.worker_count, "worker_count"),
      jobs,
      bars: readBars(run.bars, workers.length, jobs.id.length),
      moments: readMoments(run.moments),
    };
  });
}

// ---- words ----------------------------------------------------------------------------------------

/** @param {number} seconds */
function span(seconds) {
  const units = /** @type {const} */ ([["d", 86400], ["h", 3600], ["min", 60]]);
  for (const [i, [unit, size]] of units.entries()) {
    if (seconds < size) continue;
    const [smaller, part] = units[i + 1] ?? ["s", 1];
    return `${Math.floor(seconds / size)} ${unit} ${Math.floor((seconds % size) / part)} ${smaller}`;
  }
  return `${Math.floor(seconds)} s`;
}

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/**
 * What is shown of a moment; `better` says which of two values is; `ends` that none is left after
 * the end of a run.
 * @type {{ key: string, name: string, better: -1 | 0 | 1, ends?: boolean, words: (value: number, run: Run, at: number) => string }[]}
 */
const FIGURES = [
  { key: "complete", name: "measured jobs complete, of those that came", better: 1, words: (value, run, at) => `${count.format(value)} of ${count.format(run.moments.arrived[at] ?? 0)}` },
  { key: "running", name: "jobs running", better: 0, ends: true, words: (value) => count.format(value) },
  { key: "waiting", name: "jobs waiting", better: -1, ends: true, words: (value) => count.format(value) },
  { key: "busy", name: "workers busy", better: 0, ends: true, words: (value, run) => `${count.format(value)} of ${count.format(run.worker_count)}` },
  { key: "jct_s", name: "JCT so far, of complete jobs", better: -1, words: span },
  { key: "so_far_s", name: "time since arrival, of all jobs so far", better: -1, words: span },
];
/**
 * What two runs should have in common.
 * @type {{ name: string, of: (run: Run) => string }[]}
 */
const INPUTS = [
  { name: "Trace", of: (run) => run.trace || "unknown" },
  { name: "Cluster", of: (run) => run.cluster || "unknown" },
  { name: "Round length", of: (run) => (run.has_rounds ? span(run.round_length_s) : "none") },
  { name: "Measured jobs", of: (run) => count.format(run.moments.arrived.at(-1) ?? 0) },
];
const LINES = [
  { key: "waiting", name: "jobs waiting" },
  { key: "jct_s", name: "JCT so far, of complete jobs" },
  { key: "so_far_s", name: "time since arrival, of all jobs so far" },
];

// ---- drawing --------------------------------------------------------------------------------------

/** @param {string} name @param {Record<string, string | number>} [attributes] @param {...Node} children */
function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/** @param {string} name @param {string} words @param {string} [kind] */
function html(name, words, kind = "") {
  const made = document.createElement(name);
  made.textContent = words;
  if (kind) made.className = kind;
  return made;
}

/** The colour of a job: the same in all runs. @param {string} id */
function colourOf(id) {
  let sum = 0;
  for (const letter of id) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 9973;
  return `job${sum % COLOURS}`;
}

/** The part of a bar in which the worker was held. @param {Bars} bars @param {number} i */
const partHeld = (bars, i) => bars.held_s[i] / Math.max(bars.end_s[i] - bars.start_s[i], 1e-9);
// A bar that is held for less has gaps; times in a file are rounded.
const WHOLE = 0.995;

/** @param {Run} run @param {number} i */
function barWords(run, i) {
  const { bars, jobs } = run;
  const job = bars.job[i];
  const held = partHeld(bars, i);
  return [
    bars.of[i] === 1 ? `${jobs.id[job]} (${jobs.type[job]})` : `${bars.leases[i]} leases of ${bars.of[i]} jobs, longest ${jobs.id[job]}`,
    `on ${run.workers[bars.row[i]]}, ${span(bars.start_s[i])} to ${span(bars.end_s[i])}`,
    ...(bars.of[i] === 1 && bars.reason[i] ? [bars.reason[i]] : []),
    ...(bars.of[i] === 1 && bars.leases[i] > 1 ? [`${bars.leases[i]} leases`] : []),
    ...(held < WHOLE ? [`held ${Math.round(100 * held)} % of it`] : []),
  ].join(", ");
}

/** Which job held which worker. @param {Run} run @param {number} height */
function drawHeld(run, height) {
  const { bars, jobs } = run;
  const rects = bars.row.map((row, i) => {
    const shares = bars.lane[i] >= 0;
    const lane = Math.min(Math.max(bars.lane[i], 0), 1);
    return svg("rect", {
      x: bars.start_s[i],
      y: row + 0.08 + 0.42 * lane,
      width: Math.max(bars.end_s[i] - bars.start_s[i], 0),
      height: shares ? 0.42 : 0.84,
      class: `${colourOf(jobs.id[bars.job[i]])}${bars.of[i] > 1 || partHeld(bars, i) < WHOLE ? " merged" : ""}`,
      "data-bar": i,
    });
  });
  const rows = Math.max(run.workers.length, 1);
  return svg(
    "svg",
    { class: "held", height: height * rows, preserveAspectRatio: "none", role: "img", "aria-label": `Leases on each worker under ${run.policy}` },
    ...rects,
    svg("rect", { class: "later", y: 0, height: rows }),
    svg("line", { class: "now", y1: 0, y2: rows, "vector-effect": "non-scaling-stroke" }),
  );
}

/** The names of rows; of thin rows only some. @param {Run} run @param {number} height */
function drawNames(run, height) {
  const every = Math.ceil(12 / height);
  const names = run.workers.flatMap((name, row) => {
    if (row % every) return [];
    const made = svg("text", { y: height * (row + 0.5) + 4, x: 0 });
    made.textContent = name.length > 16 ? `…${name.slice(-15)}` : name; // the end tells workers apart
    return [made];
  });
  return svg("svg", { class: "names", height: height * Math.max(run.workers.length, 1), "aria-hidden": "true" }, ...names);
}

/** @param {(number | null)[]} values */
const highest = (values) => values.reduce((/** @type {number} */ most, value) => Math.max(most, value ?? 0), 0);

/** A step line. @param {Run} run @param {string} key @param {string} kind */
function drawLine(run, key, kind) {
  const { time_s } = run.moments;
  /** @type {string[]} */
  const steps = [];
  run.moments[key].forEach((value, i) => {
    if (value !== null) steps.push(`${steps.length ? `H${time_s[i]}V` : `M${time_s[i]},`}${-value}`);
  });
  if (steps.length) steps.push(`H${run.end_s}`);
  return svg("path", { d: steps.join(""), class: `line ${kind}`, "vector-effect": "non-scaling-stroke" });
}

// ---- the view -------------------------------------------------------------------------------------

/** @template {Element} T @param {string} id @param {{ new (): T }} kind */
function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`no ${id}`);
  return found;
}

function start() {
  const view = byId("runs", HTMLElement);
  const form = byId("runs-form", HTMLFormElement);
  const slider = byId("runs-at", HTMLInputElement);
  const go = byId("runs-go", HTMLButtonElement);
  const table = /** @type {HTMLTableElement} */ (view.querySelector("table"));
  const under = byId("runs-under", HTMLElement);
  const hint = under.textContent;
  const choice = (/** @type {string} */ name) => /** @type {HTMLSelectElement} */ (form.elements.namedItem(name));
  const followedBy = /** @type {HTMLInputElement} */ (form.elements.namedItem("job"));

  /** @type {Run[]} */
  let runs = [];
  /** Those that are shown: one or two. @type {Run[]} */
  let shown = [];
  /** What a run is called: its policy, with its place in the list if others have the same. @param {Run} run */
  const nameOf = (run) => (runs.some((other) => other !== run && other.policy === run.policy) ? `${runs.indexOf(run) + 1}: ${run.policy}` : run.policy);
  let at = 0;
  let followed = "";
  /** When the last frame of playing was; 0 if it stands still. */
  let playedAt = 0;
  let frame = 0;
  /** What a step of time changes. @type {((window: [number, number]) => void)[]} */
  let movers = [];

  const lastS = () => Math.max(...shown.map((run) => run.end_s));

  /** The part of time in view. @returns {[number, number]} */
  function windowOf() {
    const rounds = Number(choice("span").value);
    const length = rounds ? Math.min(rounds * shown[0].round_length_s, lastS()) : lastS();
    const begin = Math.min(Math.max(at - length / 2, 0), lastS() - length);
    return [begin, length];
  }

  /** Show the window in a drawing. A new viewBox draws all bars anew, so it is set if it changed. @param {Element} drawn @param {string} box */
  function showBox(drawn, box) {
    if (drawn.getAttribute("viewBox") !== box) drawn.setAttribute("viewBox", box);
  }

  function move() {
    const seen = windowOf();
    for (const mover of movers) mover(seen);
    slider.value = at >= lastS() ? slider.max : String(at);
    byId("runs-words", HTMLOutputElement).textContent = `${span(at)} of ${span(lastS())}`;
    slider.setAttribute("aria-valuetext", span(at));
    writeFigures();
  }

  /** The last moment that is not later than now; -1 before the first. @param {Run} run */
  function momentOf(run) {
    const { time_s } = run.moments;
    let [low, high] = [0, time_s.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (time_s[middle] <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function writeFigures() {
    const moments = shown.map(momentOf);
    FIGURES.forEach(({ key, better, ends, words }, row) => {
      const values = shown.map((run, i) => (ends && at > run.end_s ? null : run.moments[key][moments[i]] ?? null));
      const isComparable = better !== 0 && shown.length > 1 && !values.includes(null);
      shown.forEach((run, i) => {
        const cell = table.tBodies[0].rows[row].cells[1 + i];
        const value = values[i];
        const said = value !== null ? words(value, run, moments[i]) : ends && at > run.end_s ? "ended" : "-";
        if (cell.textContent !== said) cell.textContent = said;
        const isBest = values.every((other, k) => k === i || better * (other ?? 0) < better * (value ?? 0));
        cell.classList.toggle("best", isComparable && isBest);
      });
    });
  }

  function stop() {
    cancelAnimationFrame(frame);
    playedAt = 0;
    go.textContent = "Play";
  }

  /** @param {number} now */
  function play(now) {
    at = Math.min(at + (Math.max(now - playedAt, 0) / PLAY_MS) * lastS(), lastS());
    playedAt = now;
    move();
    if (at >= lastS()) stop();
    else frame = requestAnimationFrame(play);
  }

  /** @param {string} id */
  function follow(id) {
    followed = id;
    followedBy.value = id;
    for (const [i, drawn] of [...view.querySelectorAll("svg.held")].entries()) {
      const { bars, jobs } = shown[i];
      drawn.classList.toggle("following", Boolean(id));
      for (const rect of /** @type {NodeListOf<SVGElement>} */ (drawn.querySelectorAll("rect[data-bar]"))) {
        rect.classList.toggle("followed", jobs.id[bars.job[Number(rect.dataset.bar)]] === id);
      }
    }
    if (id) writeFollowed();
    else under.textContent = hint;
  }

  function writeFollowed() {
    under.textContent = shown.map((run) => {
      const i = run.jobs.id.indexOf(followed);
      if (i < 0) return `${nameOf(run)}: ${followed} has no lease that is drawn.`;
      const [arrival, begun, end] = [run.jobs.arrival_s[i], run.jobs.start_s[i], run.jobs.end_s[i]];
      const said = begun === null ? "never started" : `started after ${span(begun - arrival)}`;
      return `${nameOf(run)}: ${followed} (${run.jobs.type[i]}) came at ${span(arrival)}, ${said}, ${end === null ? "did not complete" : `complete after ${span(end - arrival)}`}.`;
    }).join(" ");
  }

  function drawAll() {
    movers = [];
    const rows = Math.max(...shown.map((run) => run.workers.length), 1);
    const height = Math.min(Math.max(Math.floor(480 / rows), 7), 18);
    const head = /** @type {HTMLTableSectionElement} */ (table.tHead).rows[0];
    head.replaceChildren(head.cells[0], ...shown.map(nameRun));
    table.tBodies[0].replaceChildren(
      ...FIGURES.map(({ name }) => {
        const row = document.createElement("tr");
        const cell = html("th", name);
        cell.setAttribute("scope", "row");
        row.append(cell, ...shown.map(() => html("td", "-", "num")));
        return row;
      }),
    );
    byId("runs-held", HTMLElement).replaceChildren(...shown.map((run, i) => drawRun(run, i, height)));
    byId("runs-lines", HTMLElement).replaceChildren(...LINES.map(({ key, name }) => drawLines(key, name)));
    const step = Math.min(...shown.map((run) => run.round_length_s));
    slider.step = String(step);
    slider.max = String((Math.floor(lastS() / step) + 1) * step);
    at = Math.min(at, lastS());
    const differ = byId("runs-differ", HTMLElement);
    const unlike = INPUTS.filter(({ of }) => new Set(shown.map(of)).size > 1);
    differ.hidden = !unlike.length;
    differ.textContent = `The two runs are of different inputs. ${unlike.map(({ name, of }) => `${name}: ${shown.map(of).join("; ")}`).join(". ")}.`;
    const known = byId("runs-jobs", HTMLDataListElement);
    const ids = [...new Set(shown.flatMap((run) => run.jobs.id))];
    known.replaceChildren(...ids.slice(0, MOST_PROPOSED).map((id) => {
      const option = document.createElement("option");
      option.value = id;
      return option;
    }));
    follow(ids.includes(followed) ? followed : "");
    move();
  }

  /** @param {Run} run @param {number} i */
  function nameRun(run, i) {
    const made = html("th", "", "num");
    made.setAttribute("scope", "col");
    made.append(html("b", nameOf(run), i ? "right" : "left"));
    return made;
  }

  /** @param {Run} run @param {number} i @param {number} height */
  function drawRun(run, i, height) {
    const made = document.createElement("figure");
    const drawn = drawHeld(run, height);
    const [later, now] = [drawn.querySelector(".later"), drawn.querySelector(".now")];
    const axis = document.createElement("div");
    axis.className = "axis";
    movers.push(([begin, length]) => {
      showBox(drawn, `${begin} 0 ${length} ${Math.max(run.workers.length, 1)}`);
      later?.setAttribute("x", String(at));
      later?.setAttribute("width", String(Math.max(begin + length - at, 0)));
      now?.setAttribute("x1", String(at));
      now?.setAttribute("x2", String(at));
      axis.replaceChildren(...[0, 0.5, 1].map((part) => html("span", span(begin + part * length))));
    });
    drawn.addEventListener("pointerover", (event) => {
      const bar = event.target instanceof SVGElement && event.target.dataset.bar;
      if (bar && !followed) under.textContent = `${nameOf(run)}: ${barWords(run, Number(bar))}`;
    });
    drawn.addEventListener("click", (event) => {
      const bar = event.target instanceof SVGElement && event.target.dataset.bar;
      const id = bar ? run.jobs.id[run.bars.job[Number(bar)]] : "";
      follow(id === followed ? "" : id);
    });
    const caption = html("figcaption", "");
    caption.append(html("b", nameOf(run), i ? "right" : "left"), ` ${run.note}`);
    const held = document.createElement("div");
    held.className = "rows";
    held.append(drawNames(run, height), drawn);
    made.append(caption, held, axis);
    return made;
  }

  /** @param {string} key @param {string} name */
  function drawLines(key, name) {
    const made = document.createElement("figure");
    const most = Math.max(...shown.map((run) => highest(run.moments[key])));
    const top = most || 1;
    const now = svg("line", { class: "now", y1: -1.05 * top, y2: 0, "vector-effect": "non-scaling-stroke" });
    const said = key.endsWith("_s") ? span(most) : count.format(most);
    const drawn = svg(
      "svg",
      { class: "lines", height: 120, preserveAspectRatio: "none", role: "img", "aria-label": `${name} over time, at most ${said}` },
      ...shown.map((run, i) => drawLine(run, key, i ? "right" : "left")),
      now,
    );
    movers.push(([begin, length]) => {
      showBox(drawn, `${begin} ${-1.05 * top} ${length} ${1.05 * top}`);
      now.setAttribute("x1", String(at));
      now.setAttribute("x2", String(at));
    });
    made.append(html("figcaption", `${name}, from 0 to ${said}`), drawn);
    return made;
  }

  function choose() {
    const [left, right] = [choice("left").value, choice("right").value];
    shown = [runs[Number(left)], ...(right ? [runs[Number(right)]] : [])];
    stop();
    drawAll();
  }

  /** Add runs to the choice. The first two are shown; of those added later, the first is on the right. @param {Run[]} more */
  function add(more) {
    const left = runs.length ? choice("left").value : "0";
    const right = runs.length || (more.length > 1 ? 1 : "");
    runs = [...runs, ...more];
    const options = runs.map((run, i) => new Option(nameOf(run) === run.policy ? run.policy : `${nameOf(run)} (${run.trace}, ${run.cluster})`, String(i)));
    choice("left").replaceChildren(...options);
    choice("right").replaceChildren(new Option("none", ""), ...options.map((one) => one.cloneNode(true)));
    choice("left").value = left;
    choice("right").value = String(right);
    view.hidden = false;
    choose();
  }

  for (const name of ["left", "right"]) choice(name).addEventListener("change", choose);
  choice("span").addEventListener("change", move);
  followedBy.addEventListener("change", () => follow(followedBy.value.trim()));
  form.addEventListener("submit", (event) => event.preventDefault());
  slider.addEventListener("input", () => {
    at = Math.min(Number(slider.value), lastS());
    stop();
    move();
  });
  go.addEventListener("click", () => {
    if (playedAt) return stop();
    if (at >= lastS()) at = 0;
    go.textContent = "Pause";
    playedAt = performance.now();
    frame = requestAnimationFrame(play);
  });

  const inside = document.getElementById("runs-data");
  if (inside) add(readRuns(JSON.parse(inside.textContent ?? ""), Infinity));

  const files = /** @type {HTMLInputElement | null} */ (document.getElementById("runs-files"));
  files?.addEventListener("change", async () => {
    const problem = byId("runs-problem", HTMLElement);
    /** @type {string[]} */
    const wrong = [];
    for (const file of files.files ?? []) {
      try {
        if (file.size > MOST_BYTES) throw new Error("it is larger than 64 MB");
        add(readRuns(JSON.parse(await file.text()), MOST_RUNS - runs.length));
      } catch (error) {
        wrong.push(`${file.name}: ${error instanceof Error ? error.message : error}`);
      }
    }
    problem.hidden = !wrong.length;
    problem.textContent = wrong.join("; ");
  });
  files?.addEventListener("click", () => (files.value = "")); // the same file may be chosen again
}

start();
