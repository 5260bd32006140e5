// Sorting and filtering of the leaderboard. Without this script the tables show all they have.
"use strict";

const NOTHING = "–";

function numberOf(text) {
  const match = text.replaceAll(",", "").match(/-?\d+(\.\d+)?(e-?\d+)?/i);
  return match && text !== NOTHING ? Number(match[0]) : null;
}

// Missing values stand last, whichever way the column is sorted.
function sortBy(table, column, up) {
  const rows = [...table.tBodies[0].rows];
  const text = (row) => row.cells[column].textContent.trim();
  const words = column < 2;
  rows.sort((first, second) => {
    const [a, b] = [first, second].map((row) => (words ? text(row) : numberOf(text(row))));
    if (a === null || b === null) return (a === null) - (b === null);
    return (up ? 1 : -1) * (words ? a.localeCompare(b) : a - b);
  });
  table.tBodies[0].append(...rows);
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = "⇅";
    button.setAttribute("aria-label", `Sort by ${head.textContent}`);
    button.addEventListener("click", () => {
      const lowFirst = column < 2 || !head.textContent.includes("↑");
      const up = head.ariaSort ? head.ariaSort === "descending" : lowFirst;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sortBy(table, column, up);
    });
    head.append(" ", button);
  });
}

function filterable(boards) {
  const form = document.createElement("form");
  form.className = "filters";
  form.innerHTML = '<label>Model <input type="search" autocomplete="off"></label> <label>Attention <select><option value="">all</option></select></label> <output></output>';
  const [input, select, output] = ["input", "select", "output"].map((name) => form.querySelector(name));
  for (const { heading } of boards) select.append(new Option(heading.firstChild.textContent.trim()));
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, all = 0;
    for (const { heading, parts, rows } of boards) {
      const hidden = Boolean(select.value) && heading.firstChild.textContent.trim() !== select.value;
      for (const part of parts) part.hidden = hidden;
      for (const row of rows) {
        row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
        shown += !row.hidden && !hidden;
        all += 1;
      }
    }
    output.textContent = `${shown} of ${all} rows`;
  };
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  boards[0].heading.before(form);
  apply();
}

// A board is a heading with what follows it, of which one part is a table with the columns model and id.
function boardOf(heading) {
  const parts = [heading];
  for (let next = heading.nextElementSibling; next && next.tagName !== "H2"; next = next.nextElementSibling) parts.push(next);
  const table = parts.map((part) => (part.matches("table") ? part : part.querySelector("table"))).find(Boolean);
  const names = table ? [...table.tHead.rows[0].cells].slice(0, 2).map((cell) => cell.textContent.trim()) : [];
  return names.join() === "model,id" ? { heading, parts, table, rows: [...table.tBodies[0].rows] } : null;
}

document.addEventListener("DOMContentLoaded", () => {
  const boards = [...document.querySelectorAll("article h2")].map(boardOf).filter(Boolean);
  if (!boards.length) return;
  for (const { table } of boards) {
    table.dataset.board = ""; // a class would take the theme's style from it
    sortable(table);
  }
  filterable(boards);
});

// A wide table is in a box that scrolls: a keyboard has to reach it, and its edge fades as long as more follows.
function scrollable(box) {
  box.tabIndex = 0;
  const mark = () => box.toggleAttribute("data-more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  box.addEventListener("scroll", mark, { passive: true });
  const observer = new ResizeObserver(mark);
  for (const part of [box, ...box.children]) observer.observe(part);
  mark(); // observers wait for the next frame
}

// The theme makes the boxes of tables. The buttons of each block of code are a landmark, which needs a name of its own.
addEventListener("load", () => {
  document.querySelectorAll(".md-typeset__scrollwrap").forEach(scrollable);
  const name = () => document.querySelectorAll(".md-code__nav").forEach((bar, at) => bar.setAttribute("aria-label", `Code ${at + 1}`));
  new MutationObserver(name).observe(document.querySelector("article"), { childList: true, subtree: true });
  name();
});
