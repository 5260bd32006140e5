// Colours, filters, and the card with the records of a number. Without this script the pages show all they have.
"use strict";

const THEMES = ["automatic", "dark", "light"];

function stored() {
  try { return localStorage.getItem("theme") || THEMES[0]; } catch { return THEMES[0]; }
}

function paint(theme) {
  if (theme === THEMES[0]) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.dispatchEvent(new Event("theme"));
}

paint(stored()); // before the page is drawn

function themes() {
  const button = document.getElementById("theme");
  let theme = stored();
  const name = () => { button.textContent = `Colours: ${theme}`; };
  button.hidden = false;
  name();
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("theme", theme); } catch { /* a page from a file may have no storage */ }
    name();
    paint(theme);
  });
}

function filters() {
  const form = document.getElementById("filters");
  if (!form) return;
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  const apply = document.getElementById("matrix") ? filterMatrix : filterRecords;
  form.addEventListener("input", apply);
  apply();
}

function filterMatrix() {
  const value = (id) => document.getElementById(id).value;
  const [paper, family, model] = [value("paper"), value("family"), value("model").trim().toLowerCase()];
  const ran = document.getElementById("ran").checked;
  const table = document.getElementById("matrix");
  const heads = [...table.tHead.rows[0].cells].slice(1);
  const rows = [...table.tBodies[0].rows];
  const fits = (cell) => (!paper || cell.dataset.papers.split(" ").includes(paper)) && (!ran || cell.dataset.runs !== "0")
    && cell.firstElementChild !== null;
  const inFamily = heads.map((head) => !family || head.dataset.family === family);
  const named = rows.filter((row) => row.dataset.model.toLowerCase().includes(model));
  const shownRows = new Set(named.filter((row) => heads.some((_, at) => inFamily[at] && fits(row.cells[at + 1]))));
  const shownColumns = heads.map((_, at) => inFamily[at] && [...shownRows].some((row) => fits(row.cells[at + 1])));
  heads.forEach((head, at) => { head.hidden = !shownColumns[at]; });
  for (const row of rows) {
    row.hidden = !shownRows.has(row);
    heads.forEach((_, at) => {
      const cell = row.cells[at + 1];
      cell.hidden = !shownColumns[at];
      if (cell.firstElementChild) cell.firstElementChild.style.visibility = fits(cell) ? "" : "hidden";
    });
  }
  const columns = shownColumns.filter(Boolean).length;
  document.getElementById("count").textContent =
    `${shownRows.size} of ${rows.length} models, ${columns} of ${heads.length} tasks`;
}

function filterRecords() {
  const words = document.getElementById("words").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.getElementById("records").tBodies[0].rows];
  let shown = 0;
  for (const row of rows) {
    row.dataset.text ??= row.textContent.toLowerCase();
    row.hidden = !words.every((word) => row.dataset.text.includes(word));
    shown += !row.hidden;
  }
  document.getElementById("count").textContent = `${shown} of ${rows.length} records`;
}

// Texts reach the page through textContent alone: a name of a model is never markup.
function element(tag, text, parent, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  parent?.append(made);
  return made;
}

const address = (path) => path.split("/").map(encodeURIComponent).join("/");

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
function fill(card, number) {
  const ids = number.dataset.cells.split(" ");
  const shown = JSON.parse(number.dataset.card);
  const groups = new Map();
  element("h2", `${shown.name}: ${number.textContent}`, card);
  if (shown.measure) element("p", `metric: ${shown.measure}`, card, { class: "line" });
  const seeds = ids.map((id) => RUNS[id]?.seed).filter((seed) => seed !== undefined);
  if (new Set(seeds).size < seeds.length) { // a mean over columns: no record holds it
    const list = element("dl", null, card);
    for (const [seed, value] of Object.entries(shown.by_seed)) pair(list, `mean of seed ${seed}`, value);
    shown.by_seed = {};
  }
  for (const id of ids) {
    if (id in MEASUREMENTS) measurement(card, id, MEASUREMENTS[id]);
    const run = RUNS[id];
    if (!run) continue;
    const key = JSON.stringify([run.command, run.hardware, run.data, run.commit]);
    groups.set(key, [...(groups.get(key) ?? []), [id, run]]);
  }
  for (const group of groups.values()) rowOf(card, group, shown.by_seed);
}

function measurement(card, name, measured) {
  element("h2", `Measured by do=bench: ${name}`, card);
  const list = element("dl", null, card);
  pair(list, "setting", measured.setting);
  if (measured.command) element("code", `python run.py ${measured.command}`, pair(list, "command", " "));
  element("a", "JSON", pair(list, "file", " "), { href: address(measured.file) });
}

function rowOf(card, group, bySeed) {
  const [, run] = group[0];
  const seeds = group.map(([, member]) => member.seed);
  element("h2", `${run.model} · ${run.task}`, card);
  const list = element("dl", null, card);
  pair(list, "recipe", `${run.protocol}, ${run.budget} budget`);
  pair(list, "changed", run.changed);
  const links = pair(list, seeds.length > 1 ? "seeds" : "seed", " ");
  group.forEach(([, member]) => {
    const line = element("div", null, links);
    const label = `record of seed ${member.seed}`;
    element("a", `${member.seed}`, line, { href: `records/${address(member.file)}`, "aria-label": label });
    const result = bySeed[member.seed] ?? member.result;
    line.append(`: ${member.status === "done" ? result : `${member.status}, ${member.result}`}`);
  });
  pair(list, "data", run.data);
  pair(list, "hardware", run.hardware);
  pair(list, "time", span(group.map(([, member]) => member.seconds), minutes));
  pair(list, "steps", span(group.map(([, member]) => member.steps), (n) => n.toLocaleString("en")));
  pair(list, "parameters", run.parameters?.toLocaleString("en"));
  pair(list, "code", run.commit);
  const start = seeds.length > 1 ? "python run.py -m" : "python run.py";
  element("code", `${start} ${run.command} seed=${seeds.join(",")}`, pair(list, "command", " "));
  sparkline(card, group);
}

function sparkline(card, group) {
  const curves = group.map(([id]) => CURVES[id]).filter(Boolean);
  if (!curves.length) return;
  const points = curves.flatMap((curve) => curve.points);
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = (value, from, to, size) => (to > from ? ((value - from) / (to - from)) * size : size / 2);
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("viewBox", "-2 -2 304 54");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("role", "img");
  const text = `val ${curves[0].metric} ${low} to ${high} over steps ${left} to ${right}`;
  drawing.setAttribute("aria-label", text);
  for (const curve of curves) {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const position = ([x, y]) => `${scale(x, left, right, 300).toFixed(1)},${(50 - scale(y, low, high, 50)).toFixed(1)}`;
    line.setAttribute("points", curve.points.map(position).join(" "));
    drawing.append(line);
  }
  card.append(drawing);
  element("p", text, card, { class: "line" });
}

function cards() {
  if (typeof RUNS === "undefined" || !document.querySelector(".number")) return;
  const card = element("div", null, document.body, { id: "card", role: "dialog", "aria-label": "Records of this number", hidden: "" });
  let owner = null, pinned = false, timer = 0;

  function hide(back = false) {
    clearTimeout(timer);
    card.hidden = true;
    owner?.removeAttribute("aria-expanded");
    if (back) owner?.focus();
    owner = null;
    pinned = false;
  }

  function show(number) {
    clearTimeout(timer);
    if (owner === number) return;
    hide();
    owner = number;
    card.replaceChildren();
    element("button", "Close", card, { type: "button", class: "close" }).addEventListener("click", () => hide(true));
    fill(card, number);
    number.setAttribute("aria-expanded", "true");
    card.hidden = false;
    card.scrollTop = 0;
    const box = number.getBoundingClientRect();
    if (matchMedia("(max-width: 40rem)").matches) {
      card.style.left = card.style.top = "";
      scrollBy(0, Math.max(0, box.bottom + 8 - card.getBoundingClientRect().top)); // the number stays in sight
      return;
    }
    const below = box.bottom + card.offsetHeight + 8 < innerHeight || box.top < card.offsetHeight + 8;
    const left = Math.max(8, Math.min(box.left, document.documentElement.clientWidth - card.offsetWidth - 8));
    card.style.left = `${left + scrollX}px`;
    card.style.top = `${(below ? box.bottom + 4 : box.top - card.offsetHeight - 4) + scrollY}px`;
  }

  const later = (action, wait) => { clearTimeout(timer); timer = setTimeout(action, wait); };
  const numberOf = (event) => event.target.closest?.(".number");
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "mouse" || pinned) return;
    const number = numberOf(event);
    if (number) later(() => show(number), 150);
    else if (card.contains(event.target)) clearTimeout(timer);
    else if (owner && document.activeElement !== owner) later(() => hide(), 300);
    else if (!owner) clearTimeout(timer);
  });
  document.addEventListener("focusin", (event) => {
    const number = numberOf(event);
    if (number && number.matches(":focus-visible")) show(number);
    else if (owner && event.target !== owner && !card.contains(event.target)) hide();
  });
  document.addEventListener("click", (event) => {
    const number = numberOf(event);
    if (number) {
      if (pinned && owner === number) return hide();
      show(number);
      pinned = true;
      // a keyboard has no pointer that could reach the links
      if (event.detail === 0) card.querySelector("a, button").focus();
    } else if (!card.contains(event.target)) hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && owner) hide(card.contains(document.activeElement));
  });
}

document.addEventListener("DOMContentLoaded", () => { themes(); filters(); cards(); });
