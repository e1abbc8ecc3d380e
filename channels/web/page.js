"use strict";
// The page. What it knows: the history's lines (fetched) and the live items (fed); it shows both as one conversation, each thing once. The
// protocol is told in feed.py. Words of people and models enter by textContent, or as HTML that the server made safe, in `setHtml` alone.

const $ = (id) => document.getElementById(id);
const policy = window.trustedTypes?.createPolicy("parlour", { createHTML: (html) => html });
const setHtml = (element, html) => { element.innerHTML = policy ? policy.createHTML(html) : html; };

const QUIET = 1200; // ms without a change until an answer counts as done
const SILENCE = 40000; // ms without an event until the connection counts as dead
const TYPING = 6000;

const state = {
  lines: [], // the history: {seq, role, text | html, input, at, cut}
  live: new Map(), // key -> item of the feed
  unsent: new Map(), // key -> {key, id, text, failed, error}
  placed: new Map(), // input + role -> ms, when it was first seen live, so that nothing jumps when the history takes over
  stale: new Set(), // keys of live items from before a gap; they go when the history is here
  seen: "", // the newest feed id
  before: { before: 0, notes: 0 }, // live turns, and commands' replies, of inputs before these are settled
  menu: [],
  sessions: [],
};

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// ------------------------------------------------------------------------------------------------------------ one conversation of both

function arrange() {
  const last = new Map(); // input -> index of its last line
  const known = new Set(); // input + role that the history has
  const times = [];
  state.lines.forEach((line, index) => {
    if (line.input) {
      last.set(line.input, index);
      known.add(line.input + line.role);
    }
    const at = state.placed.get(line.input + line.role) ?? Date.parse(line.at);
    times.push(Math.max(at || 0, times[index - 1] ?? 0));
  });
  const entries = state.lines.map((line, index) => ({ ...line, key: "h" + line.seq, when: times[index], spot: index, n: 0 }));
  for (const item of state.live.values()) {
    if (item.deleted || (item.input && known.has(item.input + item.role))) continue;
    // What answers a line stands right behind it, what was asked before its answer, anything else behind all lines that are not newer.
    let spot = state.lines.length - 0.5;
    if (last.has(item.input)) spot = last.get(item.input) + (item.role === "user" ? -0.5 : 0.25);
    else if (item.note) while (spot > 0 && times[spot - 0.5] > item.at) spot -= 1;
    entries.push({ ...item, when: item.at, spot });
  }
  entries.sort((a, b) => a.spot - b.spot || a.n - b.n);
  for (const item of state.unsent.values()) if (!state.live.has(item.key)) entries.push({ ...item, role: "user", note: /^\/[a-z_]+(\s|$)/i.test(item.text) });
  return entries;
}

const shown = new Map(); // key -> element

function draw() {
  const log = $("log");
  const entries = arrange();
  const keys = new Set(entries.map((entry) => entry.key));
  for (const [key, element] of shown) {
    if (!keys.has(key)) {
      element.remove();
      shown.delete(key);
    }
  }
  let before = $("empty").nextElementSibling;
  for (const entry of entries) {
    let element = shown.get(entry.key);
    if (!element) {
      element = make("article");
      shown.set(entry.key, element);
    }
    if (fill(element, entry) && !stuck && entry.role === "bot") $("down").hidden = false;
    if (element === before) before = before.nextElementSibling;
    else log.insertBefore(element, before);
  }
  const empty = state.ready && entries.every((entry) => entry.note); // notes are about a conversation, not one
  $("empty").hidden = !empty;
  for (const button of document.querySelectorAll(".talk")) button.disabled = empty;
  if (stuck) toBottom();
  setBusy();
}

function fill(element, entry) {
  const print = JSON.stringify([entry.role, entry.text, entry.html, entry.note, entry.buttons, entry.failed, entry.error, entry.when, entry.cut]);
  if (element.print === print) return false;
  element.print = print;
  const waiting = entry.key.startsWith("in.") && !entry.when;
  element.className = ["message", entry.role, entry.note && "note", waiting && (entry.failed ? "failed" : "sending")].filter(Boolean).join(" ");
  const who = make("div", "who");
  who.append(make("span", "", entry.role === "user" ? "You" : "Parlour"));
  if (entry.when) {
    const time = make("time", "", new Date(entry.when).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }));
    time.dateTime = new Date(entry.when).toISOString();
    time.title = new Date(entry.when).toLocaleString();
    who.append(time);
  }
  const body = make("div", "body");
  if (entry.role === "user") body.textContent = entry.text;
  else {
    setHtml(body, entry.html ?? "");
    for (const block of body.querySelectorAll("pre")) withCopy(block);
  }
  element.replaceChildren(who, body);
  if (entry.cut) element.append(make("p", "cut", entry.cut));
  if (entry.buttons?.length) {
    const row = make("div", "buttons");
    for (const button of entry.buttons) {
      const press = make("button", "", button.label);
      press.type = "button";
      press.addEventListener("click", () => say(button.data, true));
      row.append(press);
    }
    element.append(row);
  }
  if (waiting) {
    const note = make("p", "state", entry.failed ? entry.error : "Sending");
    if (entry.failed) {
      const again = make("button", "", "Send again");
      again.type = "button";
      again.addEventListener("click", () => resend(entry.key));
      const drop = make("button", "", "Drop");
      drop.type = "button";
      drop.addEventListener("click", () => { state.unsent.delete(entry.key); draw(); });
      note.append(again, drop);
    }
    element.append(note);
  }
  return true;
}

function withCopy(block) {
  const holder = make("div", "block");
  const copy = make("button", "copy", "Copy");
  copy.type = "button";
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.textContent);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Not allowed here";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  block.tabIndex = 0;
  block.replaceWith(holder);
  holder.append(block, copy);
}

let stuck = true; // the newest message is in sight, and stays so
const atBottom = () => $("scroll").scrollHeight - $("scroll").scrollTop - $("scroll").clientHeight < 90;
function toBottom() {
  stuck = true;
  $("scroll").scrollTop = $("scroll").scrollHeight;
  $("down").hidden = true;
}

// ------------------------------------------------------------------------------------------------------------------- what is fetched

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (answer.status === 401) location.reload();
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

let fetching = false;
let wanted = ""; // "", "more" or "all"
let wake = () => {}; // ends the pause after a failure

async function refresh(all) {
  if (wanted !== "all") wanted = all ? "all" : "more";
  if (fetching) {
    wake();
    return;
  }
  fetching = true;
  while (wanted) {
    const whole = wanted === "all";
    const before = state.before;
    const stale = [...state.stale];
    wanted = "";
    try {
      const last = state.lines.at(-1)?.seq ?? 0;
      const [past, list] = await Promise.all([ask("/api/history?after=" + (whole ? 0 : last)), ask("/api/sessions")]);
      if (whole) {
        state.lines = past.lines;
        $("earlier").hidden = !past.more;
        for (const key of stale) if (state.stale.delete(key)) state.live.delete(key);
        for (const [key, item] of state.live) if (item.of < (item.note ? before.notes : before.before)) state.live.delete(key);
      } else state.lines.push(...past.lines.filter((line) => line.seq > last));
      forgetOld();
      state.sessions = list.sessions;
      state.ready = true;
      drawSessions();
      draw();
    } catch {
      wanted = whole || wanted === "all" ? "all" : "more";
      await new Promise((done) => {
        wake = done;
        setTimeout(done, 3000);
      });
    }
  }
  fetching = false;
}

// A page that stays open for weeks holds no more than a fresh one would.
function forgetOld() {
  if (state.lines.length > 1000) {
    state.lines = state.lines.slice(-500);
    $("earlier").hidden = false;
  }
  if (state.live.size > 500) {
    const known = new Set(state.lines.map((line) => line.input + line.role));
    for (const [key, item] of state.live) if (item.deleted || known.has(item.input + item.role)) state.live.delete(key);
    for (const key of [...state.live.keys()].slice(0, Math.max(0, state.live.size - 500))) state.live.delete(key);
  }
  if (state.placed.size > 2000) state.placed.clear();
}

function drawSessions() {
  const names = new Set(state.sessions.map((session) => session.name));
  const children = new Map();
  for (const session of state.sessions) {
    const parent = names.has(session.parent) && session.parent !== session.name ? session.parent : "";
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(session);
  }
  const drawn = new Set();
  const branch = (parent) => {
    const list = make("ul");
    for (const session of children.get(parent) ?? []) {
      if (drawn.has(session.name)) continue;
      drawn.add(session.name);
      const row = make("li");
      const button = make("button", "", session.title || session.name);
      button.type = "button";
      button.title = session.parent ? `Forked from ${session.parent} at line ${session.parent_seq ?? 0}` : session.name;
      if (session.current) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => {
        openSide(false);
        if (!session.current) say("/switch " + session.name);
      });
      row.append(button);
      if (children.has(session.name)) row.append(branch(session.name));
      list.append(row);
    }
    return list;
  };
  const focused = document.activeElement?.closest("#sessions button")?.textContent;
  $("sessions").replaceChildren(state.sessions.length ? branch("") : make("p", "none", "None yet"));
  if (focused) [...$("sessions").querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  const current = state.sessions.find((session) => session.current);
  $("where").textContent = current ? current.title || current.name : "New conversation";
}

// ---------------------------------------------------------------------------------------------------------------------- what is fed

let source = null;
let watchdog = 0;
let quiet = 0;
let typingEnds = 0;
let tries = 0;
const fresh = new Set(); // keys of our messages that were not read out yet

function link(kind, words) {
  $("link").dataset.state = kind;
  if ($("link").firstChild.textContent !== words) $("link").firstChild.textContent = words;
}

function connect() {
  source?.close();
  source = new EventSource("/api/feed" + (state.seen ? "?after=" + encodeURIComponent(state.seen) : ""));
  source.addEventListener("hello", (event) => {
    const hello = JSON.parse(event.data);
    tries = 0;
    link("on", "Connected");
    state.menu = hello.menu;
    if (hello.gap) {
      state.stale = new Set(state.live.keys());
      state.before = { before: 0, notes: 0 };
    }
    refresh(hello.gap);
  });
  source.addEventListener("item", (event) => {
    const item = JSON.parse(event.data);
    state.live.set(item.key, item);
    state.stale.delete(item.key);
    if (item.role === "user") state.unsent.delete(item.key);
    if (item.input && !item.note) {
      const place = item.input + item.role;
      if (!state.placed.has(place)) state.placed.set(place, item.at);
    }
    if (item.role === "bot" && !item.deleted) {
      fresh.add(item.key);
      if (item.note) typing(false);
      else typing(false, true);
    }
    settleSoon();
    later();
  });
  source.addEventListener("typing", () => typing(true));
  source.addEventListener("history", (event) => {
    state.before = JSON.parse(event.data);
    refresh(true);
  });
  for (const kind of ["hello", "item", "typing", "history", "beat"]) {
    source.addEventListener(kind, (event) => {
      if (event.lastEventId) state.seen = event.lastEventId;
      clearTimeout(watchdog);
      watchdog = setTimeout(lost, SILENCE);
    });
  }
  source.addEventListener("error", lost);
}

async function lost() {
  source?.close();
  source = null;
  clearTimeout(watchdog);
  typing(false);
  link(navigator.onLine ? "wait" : "off", navigator.onLine ? "Reconnecting" : "Offline");
  tries += 1;
  await new Promise((done) => setTimeout(done, Math.min(15000, 500 * 2 ** Math.min(tries, 5)) * (0.75 + Math.random() / 2)));
  try {
    await ask("/api/menu");
    connect();
  } catch {
    link("off", "Not connected");
    lost();
  }
}

let drawing = false;
function later() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; draw(); });
}

function settleSoon() {
  clearTimeout(quiet);
  quiet = setTimeout(() => {
    readOut();
    writing = 0;
    setBusy();
    if (state.ready) refresh(false);
  }, QUIET);
}

function readOut() {
  const words = [];
  for (const key of fresh) {
    const text = shown.get(key)?.querySelector(".body")?.textContent.trim();
    if (text && text !== "…") words.push(text.length > 400 ? text.slice(0, 400) + " …" : text);
  }
  fresh.clear();
  if (words.length) $("announce").textContent = words.join("\n");
}

let writing = 0;
function typing(on, writes = false) {
  clearTimeout(typingEnds);
  $("typing").hidden = !on;
  if (on) typingEnds = setTimeout(() => typing(false), TYPING);
  if (writes) writing = Date.now();
  if (on && stuck) toBottom();
  setBusy();
}

const setBusy = () => $("stop").classList.toggle("busy", !$("typing").hidden || writing > 0);

// ---------------------------------------------------------------------------------------------------------------------- what is said

let chain = Promise.resolve();

function newId() {
  if (crypto.randomUUID) return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function say(text, button = false) {
  const id = newId();
  const item = { key: "in." + id, id, text, button, failed: false, error: "" };
  state.unsent.set(item.key, item);
  draw();
  toBottom();
  chain = chain.then(() => post(item));
}

function resend(key) {
  const item = state.unsent.get(key);
  if (!item) return;
  item.failed = false;
  draw();
  chain = chain.then(() => post(item));
}

async function post(item) {
  for (let attempt = 0; ; attempt += 1) {
    let answer = null;
    try {
      answer = await fetch("/api/say", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ id: item.id, text: item.text, button: item.button }),
      });
    } catch { /* the network; the same id again is the same message */ }
    if (answer?.ok) {
      if (state.live.has(item.key)) state.unsent.delete(item.key);
      return;
    }
    if (answer?.status === 401) location.reload();
    if ((answer && answer.status !== 503) || attempt >= 3) {
      item.failed = true;
      item.error = (answer && (await answer.json().catch(() => ({}))).error) || "Not sent: the daemon cannot be reached.";
      draw();
      return;
    }
    await new Promise((done) => setTimeout(done, 500 * 2 ** attempt));
  }
}

// ------------------------------------------------------------------------------------------------------------------- the message box

const box = $("text");
let picked = -1;

function grow() {
  box.style.height = "auto";
  box.style.height = box.scrollHeight + "px";
}

function hints() {
  const word = /^\/(\w*)$/.exec(box.value);
  const found = word ? state.menu.filter((command) => command.name.startsWith(word[1].toLowerCase())) : [];
  $("hints").hidden = found.length === 0;
  picked = -1;
  $("hints").replaceChildren(...found.map((command, index) => {
    const row = make("li");
    row.id = "hint-" + index;
    row.setAttribute("role", "option");
    row.append(make("b", "", "/" + command.name), make("span", "", command.hint));
    row.addEventListener("pointerdown", (event) => { event.preventDefault(); take(command.name); });
    row.dataset.name = command.name;
    return row;
  }));
  mark();
}

function mark() {
  [...$("hints").children].forEach((row, index) => row.setAttribute("aria-selected", String(index === picked)));
  if (picked >= 0) {
    box.setAttribute("aria-activedescendant", "hint-" + picked);
    $("hints").children[picked].scrollIntoView({ block: "nearest" });
  } else box.removeAttribute("aria-activedescendant");
}

function take(name) {
  box.value = "/" + name + " ";
  $("hints").hidden = true;
  box.focus();
}

function submit() {
  const text = box.value.trim();
  if (!text) return;
  box.value = "";
  grow();
  $("hints").hidden = true;
  say(text.toWellFormed ? text.toWellFormed() : text);
}

box.addEventListener("input", () => { grow(); hints(); });
box.addEventListener("keydown", (event) => {
  const open = !$("hints").hidden;
  const rows = $("hints").children;
  if (open && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    picked = (picked + (event.key === "ArrowDown" ? 1 : rows.length + (picked < 0 ? 0 : -1))) % rows.length;
    mark();
  } else if (open && event.key === "Escape") $("hints").hidden = true;
  else if (open && (event.key === "Tab" || event.key === "Enter") && !event.shiftKey && picked >= 0) {
    event.preventDefault();
    take(rows[picked].dataset.name);
  } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  }
});
box.addEventListener("blur", () => { $("hints").hidden = true; });
$("say").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
for (const button of document.querySelectorAll("[data-say]")) button.addEventListener("click", () => say(button.dataset.say, true));
$("fork").addEventListener("click", () => { $("fork-name").value = ""; $("name").showModal(); });
$("no-fork").addEventListener("click", () => $("name").close());
$("name").addEventListener("close", () => {
  const name = $("fork-name").value.replace(/\s+/g, " ").trim();
  if ($("name").returnValue === "fork" && name) say("/fork " + name);
  $("name").returnValue = "";
  box.focus();
});

function openSide(open) {
  document.body.classList.toggle("side-open", open);
  $("open-side").setAttribute("aria-expanded", String(open));
}
$("open-side").addEventListener("click", () => { openSide(true); $("sessions").querySelector("button")?.focus(); });
$("shade").addEventListener("click", () => openSide(false));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") openSide(false); });
$("down").addEventListener("click", toBottom);
$("scroll").addEventListener("scroll", () => {
  stuck = atBottom();
  if (stuck) $("down").hidden = true;
});
const sizes = new ResizeObserver(() => { if (stuck) toBottom(); });
sizes.observe($("scroll"));
sizes.observe($("log"));
window.addEventListener("online", () => { tries = 0; });
window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
// A browser has six connections for all its tabs: one that is not looked at gives its own back, and catches up when it is.
let parking = 0;
let parked = false;
document.addEventListener("visibilitychange", () => {
  clearTimeout(parking);
  if (document.hidden) {
    parking = setTimeout(() => {
      parked = Boolean(source);
      source?.close();
      source = null;
      clearTimeout(watchdog);
    }, 60000);
  } else if (parked) {
    parked = false;
    connect();
  }
});

connect();
