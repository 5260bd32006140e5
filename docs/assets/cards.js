// The card behind a number, and the list of all records. Texts reach a page through textContent alone.
"use strict";

const RECORDS_URL = new URL("records.js", document.currentScript.src).href;
const ROOT_URL = new URL("../", RECORDS_URL);
const PER_PAGE = 50;

function element(tag, text, parent, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent?.append(made);
  return made;
}

// The records are one script, because a page from a file cannot fetch; it is loaded for the first card.
let loading = null;
function records() {
  loading ??= new Promise((resolve, reject) => {
    if (window.RECORDS) return resolve(window.RECORDS);
    element("script", null, document.head, { src: RECORDS_URL }).addEventListener("load", () => resolve(window.RECORDS));
    document.head.lastChild.addEventListener("error", reject);
  }).then((data) => {
    const runs = new Map();
    const runOf = (row) => Object.fromEntries(data.fields.map((name, at) => [name, row[at]]));
    for (const row of data.rows) runs.set(row[0], row);
    return { ...data, runOf, run: (id) => (runs.has(id) ? runOf(runs.get(id)) : null) };
  });
  return loading;
}

const linkTo = (path) => new URL(path.split("/").map(encodeURIComponent).join("/"), ROOT_URL).href;

function pair(list, name, value) {
  if (value === null || value === undefined || value === "") return null;
  element("dt", name, list);
  return element("dd", String(value), list);
}

function minutes(seconds) {
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  return seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function span(values, text) {
  const numbers = values.filter((value) => value !== null).sort((a, b) => a - b);
  if (!numbers.length) return null;
  const [low, high] = [text(numbers[0]), text(numbers.at(-1))];
  return low === high ? low : `${low} to ${high}`;
}

// The number that was pointed at: its column, its metric and its seeds, then the runs behind it.
function fill(box, number, shown, data) {
  element("h2", `${shown.name}: ${number.textContent}`, box);
  if (shown.measure) element("p", `metric: ${shown.measure}`, box);
  const runs = shown.cells.map((id) => data.run(id)).filter(Boolean);
  let bySeed = shown.by_seed;
  if (new Set(runs.map((run) => run.seed)).size < runs.length) { // a mean over columns: no record holds it
    const list = element("dl", null, box);
    for (const [seed, value] of Object.entries(bySeed)) pair(list, `mean of seed ${seed}`, value);
    bySeed = {};
  }
  for (const id of shown.cells) if (id in data.measurements) measurement(box, id, data.measurements[id]);
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify([run.command, run.hardware, run.data, run.commit]);
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  for (const group of groups.values()) rowOf(box, group, bySeed);
}

function measurement(box, name, measured) {
  element("h2", "Measured by do=bench", box);
  const list = element("dl", null, box);
  pair(list, "setting", measured.setting);
  if (measured.command) element("code", `python run.py ${measured.command}`, pair(list, "command", " "));
  element("a", name, pair(list, "page", " "), { href: linkTo(`results/tables/bench/${name}.html`) });
}

function rowOf(box, group, bySeed) {
  const [run] = group;
  const seeds = group.map((member) => member.seed);
  element("h2", `${run.name} · ${run.task}`, box);
  const list = element("dl", null, box);
  pair(list, "recipe", `${run.protocol}, ${run.budget} budget`);
  pair(list, "changed", run.changed);
  const links = pair(list, seeds.length > 1 ? "seeds" : "seed", " ");
  for (const member of group) {
    const line = element("div", null, links);
    element("a", `${member.seed}`, line, { href: linkTo(`results/records/${member.file}`), "aria-label": `record of seed ${member.seed}` });
    line.append(`: ${member.status === "done" ? bySeed[member.seed] ?? member.result : `${member.status}, ${member.result}`}`);
  }
  pair(list, "data", run.data);
  pair(list, "hardware", run.hardware);
  pair(list, "time", span(group.map((member) => member.seconds), minutes));
  pair(list, "steps", span(group.map((member) => member.steps), (count) => count.toLocaleString("en")));
  pair(list, "parameters", run.parameters?.toLocaleString("en"));
  pair(list, "code", run.commit);
  const start = seeds.length > 1 ? "python run.py -m" : "python run.py";
  element("code", `${start} ${run.command} seed=${seeds.join(",")}`, pair(list, "command", " "));
}

function cards() {
  const held = document.getElementById("cards");
  if (!held) return;
  const shown = JSON.parse(held.textContent);
  const box = element("div", null, document.body, { id: "card", class: "md-typeset", role: "dialog", "aria-label": "Records of this number", hidden: "" });
  let owner = null, pinned = false, timer = 0;
  for (const number of document.querySelectorAll("button.number")) number.setAttribute("aria-haspopup", "dialog");

  function hide(back = false) {
    clearTimeout(timer);
    box.hidden = true;
    owner?.removeAttribute("aria-expanded");
    if (back) owner?.focus();
    owner = null;
    pinned = false;
  }

  async function show(number) {
    clearTimeout(timer);
    if (owner === number) return;
    hide();
    owner = number;
    const data = await records().catch(() => null);
    if (owner !== number) return; // another number was pointed at meanwhile
    box.replaceChildren();
    element("button", "Close", box, { type: "button", class: "close" }).addEventListener("click", () => hide(true));
    if (data) fill(box, number, shown[number.dataset.card], data);
    else element("p", "The records are missing: make site makes them.", box);
    number.setAttribute("aria-expanded", "true");
    box.hidden = false;
    box.scrollTop = 0;
    const place = number.getBoundingClientRect();
    if (matchMedia("(max-width: 40rem)").matches) {
      box.style.left = box.style.top = "";
      scrollBy(0, Math.max(0, place.bottom + 8 - box.getBoundingClientRect().top)); // the number stays in sight
      return;
    }
    const below = place.bottom + box.offsetHeight + 8 < innerHeight || place.top < box.offsetHeight + 8;
    const left = Math.max(8, Math.min(place.left, document.documentElement.clientWidth - box.offsetWidth - 8));
    box.style.left = `${left + scrollX}px`;
    box.style.top = `${(below ? place.bottom + 4 : place.top - box.offsetHeight - 4) + scrollY}px`;
  }

  const later = (action, wait) => { clearTimeout(timer); timer = setTimeout(action, wait); };
  const numberOf = (event) => event.target.closest?.("button.number");
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || pinned) return;
    const number = numberOf(event);
    if (number) later(() => show(number), 150);
    else if (box.contains(event.target)) clearTimeout(timer);
    else if (owner && document.activeElement !== owner) later(() => hide(), 300);
    else if (!owner) clearTimeout(timer);
  });
  document.addEventListener("focusin", (event) => {
    const number = numberOf(event);
    if (number && number.matches(":focus-visible")) show(number);
    else if (owner && event.target !== owner && !box.contains(event.target)) hide();
  });
  document.addEventListener("click", async (event) => {
    const number = numberOf(event);
    if (number) {
      if (pinned && owner === number) return hide();
      await show(number);
      pinned = owner === number;
      if (pinned && event.detail === 0) box.querySelector("a, button").focus(); // a keyboard cannot point at the links
    } else if (!box.contains(event.target)) hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && owner) hide(box.contains(document.activeElement));
  });
}

const COLUMNS = { // of the list of records
  name: (run) => run.name,
  task: (run) => run.task,
  recipe: (run) => `${run.protocol}, ${run.budget}`,
  seed: (run) => run.seed,
  result: (run) => (run.status === "done" ? run.result : `${run.status}, ${run.result}`),
  data: (run) => run.data,
  changed: (run) => run.changed,
  command: (run) => `python run.py ${run.command} seed=${run.seed}`,
};

// All records: a page of rows at a time, with those that have all the words.
function listOfRecords(box, data) {
  const texts = data.rows.map((row) => row.join(" ").toLowerCase());
  let fitting = data.rows, page = 0;
  box.replaceChildren();
  const form = element("form", null, box, { class: "filters" });
  const input = element("input", null, element("label", "Words ", form), { type: "search", autocomplete: "off", placeholder: "lavo listops reduced" });
  const [before, after] = ["Previous", "Next"].map((name) => element("button", name, form, { type: "button" }));
  const output = element("output", null, form);
  const scroll = element("div", null, box, { class: "md-typeset__scrollwrap" });
  const table = element("table", null, element("div", null, scroll, { class: "md-typeset__table" }));
  scrollable(scroll);
  const head = element("tr", null, element("thead", null, table));
  for (const name in COLUMNS) element("th", name, head, { scope: "col" });
  const body = element("tbody", null, table);
  const draw = () => {
    const last = Math.max(0, Math.ceil(fitting.length / PER_PAGE) - 1);
    page = Math.min(page, last);
    body.replaceChildren();
    for (const row of fitting.slice(page * PER_PAGE, (page + 1) * PER_PAGE)) {
      const run = data.runOf(row), line = element("tr", null, body);
      for (const [name, textOf] of Object.entries(COLUMNS)) {
        const text = String(textOf(run) ?? ""), entry = element("td", null, line, { class: name });
        if (name === "seed") element("a", text, entry, { href: linkTo(`results/records/${run.file}`), "aria-label": `record of seed ${text}` });
        else if (name === "command") element("code", text, entry);
        else entry.textContent = text;
      }
    }
    output.textContent = `${fitting.length} of ${data.rows.length} records, page ${page + 1} of ${last + 1}`;
    before.disabled = page === 0;
    after.disabled = page === last;
  };
  const turn = (step) => () => { page += step; draw(); };
  before.addEventListener("click", turn(-1));
  after.addEventListener("click", turn(1));
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    fitting = data.rows.filter((_, at) => words.every((word) => texts[at].includes(word)));
    page = 0;
    draw();
  });
  draw();
}

document.addEventListener("DOMContentLoaded", () => {
  cards();
  const list = document.getElementById("all-records");
  if (list) records().then((data) => listOfRecords(list, data), () => { list.textContent = "The records are missing: make site makes them."; });
});
