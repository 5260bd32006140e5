// Charts by Plotly, whose script lies beside the page. A model has the colour, marker and dash that it has in the pictures.
"use strict";

const NARROW = 640; // pixels
// Plotly's names for matplotlib's
const SYMBOLS = { "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "p": "pentagon", "*": "star", "h": "hexagon", "P": "cross", "<": "triangle-left", ">": "triangle-right", "d": "diamond-tall", "X": "x", "x": "x-thin-open" };
const DASHES = { "-": "solid", "--": "dash", "-.": "dashdot", ":": "dot" };

// Plotly reads a little markup in names and titles: these characters start it
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

function trace(series) {
  const { colour, marker, dash } = series.look;
  const symbol = SYMBOLS[marker];
  const made = {
    name: plain(series.name), x: series.x, y: series.y, type: "scatter", mode: series.size ? "markers" : "lines+markers",
    text: series.labels?.map(plain), hovertemplate: "%{x:,}: %{y:.4g} %{text}<extra>%{fullData.name}</extra>",
    line: { color: colour, dash: DASHES[dash], width: 2 },
    marker: {
      color: colour, size: series.size ? Math.max(8, Math.sqrt(series.size[0]) * 22) : 8,
      symbol: series.hollow?.map((hollow) => (hollow ? `${symbol}-open` : symbol)) ?? symbol,
    },
  };
  if (!series.labels) made.text = series.x.map(() => "");
  if (series.low) {
    const far = (values, sign) => values.map((value, index) => sign * (value - series.y[index]));
    made.error_y = { type: "data", symmetric: false, array: far(series.high, 1), arrayminus: far(series.low, -1), color: colour, thickness: 1 };
  }
  return made;
}

function layout(chart) {
  const style = getComputedStyle(document.body);
  const probe = document.createElement("i");
  document.body.append(probe);
  probe.style.color = "var(--rule)";
  const rule = getComputedStyle(probe).color;
  probe.remove();
  // a logarithmic axis: the lengths themselves where they are few, else powers of ten, and 2 and 5 of each where there
  // is room
  const narrow = innerWidth < NARROW;
  const lengths = [...new Set(chart.series.flatMap((series) => series.x))];
  const ticks = (log, values) => (!log ? {} : values.length && values.length < (narrow ? 5 : 9) ? { tickvals: values, tickformat: "," } : { dtick: narrow && values.length ? 1 : "D2", tickformat: ",~r" });
  const axis = (title, log, values) => ({ title: { text: plain(title) }, type: log ? "log" : "linear", gridcolor: rule, zerolinecolor: rule, ...ticks(log, values) });
  return {
    xaxis: { ...axis(chart.x, chart.log_x, lengths), automargin: true }, yaxis: { ...axis(chart.y, chart.log_y, []), automargin: true },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: style.color, family: style.fontFamily },
    margin: { l: 10, r: 10, t: 10, b: 10 }, hovermode: "closest", showlegend: true,
    legend: narrow ? { orientation: "h", yref: "container", yanchor: "bottom", y: 0, xref: "container", xanchor: "left", x: 0 } : {},
  };
}

function draw() {
  const charts = JSON.parse(document.getElementById("chart-data").textContent);
  for (const box of document.querySelectorAll("[data-chart]")) {
    const chart = charts[box.dataset.chart];
    // on a phone the legend stands below the lines: one or two names in a row
    const names = chart.series.map((series) => series.name);
    const rows = Math.max(...names.map((name) => name.length)) > 14 ? names.length : Math.ceil(names.length / 2);
    box.style.height = innerWidth < NARROW ? `${340 + 20 * rows}px` : "";
    Plotly.react(box, chart.series.map(trace), layout(chart), { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

document.addEventListener("DOMContentLoaded", draw);
document.addEventListener("theme", () => { if (document.readyState === "complete") draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
