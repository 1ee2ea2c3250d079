// What a page does beyond showing itself: it follows changes, writes times for people, and hears keys.
// Without this file everything can still be read and used.
// @ts-check

const body = document.body;
const live = /** @type {HTMLElement | null} */ (document.getElementById("live"));
const root = body.dataset.root ?? "./";

// ---- times ----------------------------------------------------------------------------------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
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
    const text = ago < 0 ? `in ${span(-ago)}` : `${span(ago)} ago`;
    if (time.textContent !== text) time.textContent = text;
    const title = exact.format(at);
    if (time.getAttribute("title") !== title) time.setAttribute("title", title);
  }
}

// ---- following ------------------------------------------------------------------------------------

/** @type {EventSource | null} */
let stream = null;
let seenAt = Date.now();
let isCut = false;
let tries = 0;

/** Whether a person is at work in the changing part, which must not move then. */
function isInUse() {
  const at = document.activeElement;
  return live?.contains(at) && at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
}

function refresh() {
  if (live && !isInUse() && !document.getSelection()?.toString()) live.dispatchEvent(new CustomEvent("refresh"));
}

/** @param {boolean} cut */
function setCut(cut) {
  if (cut === isCut) return;
  isCut = cut;
  body.classList.toggle("stale", cut);
  const banner = document.getElementById("cut");
  if (banner) banner.hidden = !cut;
  const since = /** @type {HTMLTimeElement | null} */ (document.getElementById("cut-since"));
  if (since && cut) since.dateTime = new Date(seenAt).toISOString();
  writeTimes();
}

function follow() {
  if (stream || document.hidden || !live || !("signedIn" in body.dataset)) return;
  const mine = new EventSource(`${root}changes`);
  stream = mine;
  mine.addEventListener("change", () => {
    tries = 0;
    refresh();
  });
  mine.addEventListener("error", () => {
    mine.close();
    if (stream !== mine) return;
    stream = null;
    tries += 1;
    if (tries > 1) setCut(true);
    refresh(); // an ended session shows here
    setTimeout(follow, Math.min(500 * 2 ** tries, 8000));
  });
}

function unfollow() {
  stream?.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : follow()));
window.addEventListener("pagehide", unfollow);
window.addEventListener("pageshow", follow);

document.addEventListener("htmx:before:response", (event) => {
  const status = /** @type {CustomEvent} */ (event).detail.ctx.response.status;
  if (status === 401) location.reload(); // the scheduler leads to the page for signing in
  if (status >= 500) setCut(true);
  if (status < 400) {
    seenAt = Date.now();
    setCut(false);
  }
});
document.addEventListener("htmx:error", () => setCut(true));
document.addEventListener("htmx:after:swap", () => {
  writeTimes();
  choose(chosen);
});

function writeFreshness() {
  const place = document.getElementById("fresh");
  if (place && live) place.textContent = isCut ? "not current" : `updated ${span((Date.now() - seenAt) / 1000)} ago`;
}

// ---- keys -----------------------------------------------------------------------------------------

let chosen = -1;
let isGoing = false;

const rows = () => /** @type {HTMLElement[]} */ ([...document.querySelectorAll("#live .list tbody tr")]);

/** @param {number} index */
function choose(index) {
  const all = rows();
  chosen = Math.max(-1, Math.min(index, all.length - 1));
  all.forEach((row, i) => row.classList.toggle("chosen", i === chosen));
  return all[chosen];
}

document.addEventListener("keydown", (event) => {
  const at = event.target;
  const isTyping = at instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(at.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping) {
    if (event.key === "Escape") at.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(".top nav a"))) {
      if (link.textContent?.[0].toLowerCase() === event.key) location.assign(link.href);
    }
    return;
  }
  if (event.key === "g") isGoing = true;
  else if (event.key === "/") {
    document.getElementById("find")?.focus();
    event.preventDefault();
  } else if (event.key === "?") /** @type {HTMLDialogElement | null} */ (document.getElementById("keys"))?.showModal();
  else if (event.key === "j" || event.key === "k") {
    choose(chosen + (event.key === "j" ? 1 : -1))?.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter" && chosen >= 0 && at === body) {
    rows()[chosen]?.querySelector("a")?.click();
  }
});

// ---- start ----------------------------------------------------------------------------------------

/** @type {HTMLFormElement | null} */ (document.querySelector("form[data-send]"))?.requestSubmit();
const zoneLine = document.getElementById("zone");
if (zoneLine) zoneLine.textContent = `times in ${zone}`;
writeTimes();
follow();
setInterval(() => {
  if (document.hidden) return;
  writeTimes();
  writeFreshness();
}, 1000);
