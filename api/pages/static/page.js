// What a page does beyond showing itself: it follows changes, writes times for people, and hears keys.
// Without this file everything can still be read and used.
// @ts-check

const body = document.body;
const live = /** @type {HTMLElement | null} */ (document.getElementById("live"));
const root = body.dataset.root ?? "./";

// ---- times ----------------------------------------------------------------------------------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const short = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const UNITS = /** @type {const} */ ([["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]);

/** @param {number} seconds */
function span(seconds) {
  for (const [unit, size] of UNITS) {
    if (seconds >= size * (unit === "s" ? 0 : 2)) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return "0 s";
}

function writeTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = Date.parse(/** @type {HTMLTimeElement} */ (time).dateTime);
    if (Number.isNaN(at)) continue;
    const ago = (Date.now() - at) / 1000;
    const relative = ago < 0 ? `in ${span(-ago)}` : `${span(ago)} ago`;
    const text = time.hasAttribute("data-exact") ? short.format(at) : relative;
    if (time.textContent !== text) time.textContent = text;
    const title = time.hasAttribute("data-exact") ? `${exact.format(at)}, ${relative}` : exact.format(at);
    if (time.getAttribute("title") !== title) time.setAttribute("title", title);
  }
}

// ---- following ------------------------------------------------------------------------------------

// The scheduler says something at least every 5 s.
const SILENCE_MS = 15000;
// For so long a selection of text keeps the page from changing.
const SELECTION_MS = 30000;

/** @type {EventSource | null} */
let stream = null;
let heardAt = Date.now();
let shownAt = Date.now();
let tries = 0;
/** @type {"current" | "cut" | "failed"} */
let state = "current";

const follows = live?.hasAttribute("hx-get") && "signedIn" in body.dataset;

function refresh() {
  const isSelecting = live && document.getSelection()?.containsNode(live, true) && document.getSelection()?.toString();
  if (isSelecting && state === "current" && Date.now() - shownAt < SELECTION_MS) return;
  live?.dispatchEvent(new CustomEvent("refresh"));
}

/** @param {"current" | "cut" | "failed"} next */
function setState(next) {
  if (next === state) return;
  state = next;
  body.classList.toggle("stale", state !== "current");
  for (const id of ["cut", "failed"]) {
    const banner = document.getElementById(id);
    if (banner) banner.hidden = state !== id;
  }
  const since = document.getElementById("cut-since");
  if (since) since.textContent = exact.format(shownAt);
  writeFreshness();
}

function follow() {
  if (stream || document.hidden || !follows) return;
  const mine = new EventSource(`${root}changes`);
  stream = mine;
  heardAt = Date.now();
  mine.addEventListener("change", () => {
    tries = 0;
    heardAt = Date.now();
    refresh();
  });
  mine.addEventListener("error", () => again(mine));
}

/** @param {EventSource} mine */
function again(mine) {
  mine.close();
  if (stream !== mine) return;
  stream = null;
  tries += 1;
  refresh(); // what is wrong shows there: an ended session, or a scheduler that does not answer
  setTimeout(follow, Math.min(500 * 2 ** tries, 8000));
}

function unfollow() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow()));
window.addEventListener("pagehide", unfollow);
window.addEventListener("pageshow", follow);

/** @param {Event} event */
const isOfLive = (event) => event.target === live;

document.addEventListener("htmx:before:response", (event) => {
  const status = /** @type {CustomEvent} */ (event).detail.ctx.response.status;
  if (status === 401) location.reload(); // the scheduler leads to the page for signing in
  else if (isOfLive(event) && status >= 400) setState("failed");
  else if (isOfLive(event)) {
    shownAt = Date.now();
    setState("current");
  }
});
document.addEventListener("htmx:error", (event) => {
  if (isOfLive(event)) setState("cut");
});
document.addEventListener("htmx:after:swap", writeTimes);

// The end of output stays in view, unless its reader has scrolled up.
/** @type {Set<Element>} */
const scrolledUp = new Set();
const tails = () => document.querySelectorAll("pre[data-tail]");

document.addEventListener("htmx:before:swap", () => {
  scrolledUp.clear();
  for (const pre of tails()) {
    if (pre.scrollTop + pre.clientHeight < pre.scrollHeight - 8) scrolledUp.add(pre);
  }
});

function showEnds() {
  for (const pre of tails()) if (!scrolledUp.has(pre)) pre.scrollTop = pre.scrollHeight;
}

document.addEventListener("htmx:after:swap", showEnds);

function writeFreshness() {
  const place = document.getElementById("fresh");
  if (place && follows) place.textContent = state === "current" ? `updated ${span((Date.now() - shownAt) / 1000)} ago` : "not current";
}

// ---- keys -----------------------------------------------------------------------------------------

let goesAt = 0;

/** @param {number} step */
function moveFocus(step) {
  const links = /** @type {HTMLElement[]} */ (
    [...document.querySelectorAll("#live .list tbody tr")].map((row) => row.querySelector("a")).filter(Boolean)
  );
  const at = links.findIndex((link) => link.closest("tr")?.contains(document.activeElement));
  links[Math.max(0, Math.min(at + step, links.length - 1))]?.focus();
}

document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName)) {
    if (event.key === "Escape") at.blur();
    return;
  }
  const isGoing = Date.now() - goesAt < 1500;
  goesAt = 0;
  if (isGoing) {
    for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".top nav a"))) {
      if (link.textContent?.[0].toLowerCase() === event.key) location.assign(link.href);
    }
  } else if (event.key === "g") goesAt = Date.now();
  else if (event.key === "/") {
    document.getElementById("find")?.focus();
    event.preventDefault();
  } else if (event.key === "?") /** @type {HTMLDialogElement | null} */ (document.getElementById("keys"))?.showModal();
  else if (event.key === "j") moveFocus(1);
  else if (event.key === "k") moveFocus(-1);
});

// ---- the scrubber of rounds -----------------------------------------------------------------------

const slider = /** @type {HTMLInputElement | null} */ (document.querySelector("form[data-scrub] input[type=range]"));
/** @type {ReturnType<typeof setTimeout> | undefined} */
let scrubbing;

function writeSlider() {
  const place = document.getElementById("until-words");
  if (!slider || !place) return;
  place.textContent = slider.value === slider.max ? "now" : short.format(Number(slider.value) * 1000);
  slider.setAttribute("aria-valuetext", place.textContent);
}

document.addEventListener("input", (event) => event.target === slider && writeSlider());
document.addEventListener("change", (event) => {
  const form = event.target instanceof Element ? event.target.closest("form[data-scrub]") : null;
  if (!(form instanceof HTMLFormElement) || (event.target instanceof HTMLInputElement && event.target !== slider)) return;
  clearTimeout(scrubbing); // several steps by keys are one question
  scrubbing = setTimeout(() => form.requestSubmit(), event.target === slider ? 600 : 0);
});
document.addEventListener("formdata", (event) => {
  if (!slider || event.target !== slider.form) return;
  event.formData.delete("at");
  if (slider.value === slider.max) event.formData.delete("until"); // the window follows the present
});

// ---- saved views ----------------------------------------------------------------------------------

const saved = document.getElementById("saved");
const VIEWS = "leasehold-views";
const MOST_VIEWS = 30;

/** Views of this browser: name and query; whatever else is stored there counts as nothing. @returns {[string, string][]} */
function readViews() {
  try {
    /** @type {unknown} */
    const found = JSON.parse(localStorage.getItem(VIEWS) ?? "[]");
    return /** @type {unknown[]} */ (Array.isArray(found) ? found : []).filter(isView).slice(0, MOST_VIEWS);
  } catch {
    return [];
  }
}

/** @param {unknown} one @returns {one is [string, string]} */
function isView(one) {
  return Array.isArray(one) && typeof one[0] === "string" && typeof one[1] === "string" && /^\?|^$/.test(one[1]);
}

/** @param {[string, string][]} views */
function keepViews(views) {
  try {
    localStorage.setItem(VIEWS, JSON.stringify(views.slice(0, MOST_VIEWS)));
  } catch {
    // the browser keeps nothing for this page
  }
  showViews();
}

function showViews() {
  const views = readViews();
  saved?.querySelector("ul")?.replaceChildren(
    ...views.map(([name, query]) => {
      const row = document.createElement("li");
      const link = document.createElement("a");
      link.textContent = name;
      link.href = `${root}jobs${query}`;
      const drop = document.createElement("button");
      drop.textContent = "×";
      drop.className = "plain";
      drop.setAttribute("aria-label", `Drop ${name}`);
      drop.addEventListener("click", () => keepViews(readViews().filter((one) => one[0] !== name)));
      row.append(link, " ", drop);
      return row;
    }),
  );
}

saved?.querySelector("form")?.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  const name = String(new FormData(form).get("name")).trim();
  const query = new URLSearchParams(location.search);
  query.delete("cursor");
  if (name) keepViews([[name, query.size ? `?${query}` : ""], ...readViews().filter((one) => one[0] !== name)]);
  form.reset();
});

// ---- start ----------------------------------------------------------------------------------------

/** @type {HTMLFormElement | null} */ (document.querySelector("form[data-send]"))?.requestSubmit();
// A link from elsewhere came without the cookie of the session; a request of this page has it.
const wanted = /** @type {HTMLElement | null} */ (document.querySelector("form[data-next]"))?.dataset.next;
if (wanted) {
  fetch(wanted, { method: "HEAD", redirect: "manual" }).then(
    (answer) => answer.ok && location.replace(wanted),
    () => {},
  );
}
const zoneLine = document.getElementById("zone");
if (zoneLine) zoneLine.textContent = `times in ${zone}`;
if (saved) saved.hidden = false;
showViews();
showEnds();
writeTimes();
writeSlider();
follow();
setInterval(() => {
  if (document.hidden) return;
  if (stream && Date.now() - heardAt > SILENCE_MS) again(stream);
  writeTimes();
  writeFreshness();
}, 1000);
