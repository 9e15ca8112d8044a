"use strict";
const root = document.documentElement;
const query = (selector, where = document) => where.querySelector(selector);
const all = (selector, where = document) => Array.from(where.querySelectorAll(selector));
let data = JSON.parse(query("#data").textContent);

/* theme */
const remembered = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
if (remembered === "light" || remembered === "dark") root.dataset.theme = remembered;
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
dark.addEventListener("change", repaint);

function colours() {
  const style = getComputedStyle(root);
  const value = (name) => style.getPropertyValue(name).trim();
  return { ink: value("--ink"), soft: value("--soft"), grid: value("--grid"), card: value("--card"), line: value("--line") };
}

/* figures */
function themed(layout, width) {
  const colour = colours();
  const narrow = width < 480;
  const result = structuredClone(layout);
  result.paper_bgcolor = "rgba(0,0,0,0)";
  result.plot_bgcolor = "rgba(0,0,0,0)";
  result.font = { color: colour.ink, size: narrow ? 11 : 13, family: getComputedStyle(document.body).fontFamily };
  result.hoverlabel = { bgcolor: colour.card, bordercolor: colour.line, font: { color: colour.ink, size: 13 }, align: "left" };
  result.legend = { ...result.legend, bgcolor: "rgba(0,0,0,0)", font: { size: narrow ? 10 : 12 } };
  if (width < 640) Object.assign(result.legend, { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom" });
  for (const key of Object.keys(result)) {
    if (/^[xy]axis\d*$/.test(key)) {
      result[key] = { ...result[key], gridcolor: colour.grid, linecolor: colour.line, tickcolor: colour.line };
      result[key].title = { ...result[key].title, font: { color: colour.soft, size: narrow ? 11 : 12 } };
      if (narrow) result[key].tickfont = { size: 10 };
    }
  }
  result.margin = { ...result.margin, t: Math.max(result.margin?.t ?? 0, 34) }; /* the toolbar has a strip of its own */
  if (narrow) result.margin = { ...result.margin, l: Math.min(result.margin.l, 44), r: 8 };
  return result;
}

const settings = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { format: "svg" } };

async function draw(element) {
  const spec = data.figures[element.dataset.figure];
  if (!spec) return;
  const traces = structuredClone(spec.data);
  if (element.clientWidth < 480) for (const trace of traces) {
    if (trace.textfont) trace.textfont.size = 9;
    if (trace.type === "heatmap") trace.showscale = false;
  }
  const layout = themed(spec.layout, element.clientWidth);
  if (element.clientWidth < 640 && spec.layout.showlegend !== false) { /* a legend above needs room of its own */
    layout.height += 14 * Math.max(0, traces.filter((trace) => trace.showlegend !== false).length - 2);
    element.style.height = `${layout.height}px`;
  }
  const bar = element.clientWidth < 640 ? false : "hover"; /* there the legend lies above */
  await Plotly.react(element, traces, layout, { ...settings, displayModeBar: bar });
  if (!element.dataset.drawn) {
    element.dataset.drawn = "yes";
    element.on("plotly_click", (event) => {
      const custom = event.points[0].customdata;
      if (Array.isArray(custom) && custom[0]) detail(custom[0]);
    });
  }
}

let round = 0;
async function drawAll() {
  const mine = ++round;
  delete root.dataset.drawn;
  for (const element of all(".plot")) {
    await new Promise((resume) => setTimeout(resume, 0)); /* the page stays alive between figures */
    if (mine !== round) return;
    await draw(element);
  }
  root.dataset.drawn = "all";
}
function repaint() { drawAll(); }

/* a soup and its row of W; every text goes in as text */
function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = String(text);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
function tokens(count) {
  if (count === null || count === undefined) return "–";
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) if (count >= size) return `${+(count / size).toPrecision(4)}${letter}`;
  return String(count);
}
const number = (value, digits) => value === null || value === undefined ? "–" : value.toFixed(digits);

function facts(pairs) {
  const list = make("dl", null, { class: "facts" });
  for (const [name, value] of pairs) {
    const part = make("div");
    part.append(make("dt", name), make("dd", value));
    list.append(part);
  }
  return list;
}

function strip(row) {
  const weights = new Map(row);
  const largest = Math.max(...weights.values());
  const holder = make("div", null, { class: "strip", role: "img", "aria-label": "weights over the checkpoints of each branch" });
  const branches = new Map();
  for (const [key, [branch, position]] of Object.entries(data.checkpoints)) {
    if (!branches.has(branch)) branches.set(branch, []);
    branches.get(branch).push([position, key]);
  }
  let last = 0;
  for (const [branch, checkpoints] of branches) {
    const cells = make("div", null, { class: "cells" });
    for (const [position, key] of checkpoints.sort((a, b) => a[0] - b[0])) {
      const weight = weights.get(key) || 0;
      const cell = make("i", null, { title: `${key}: ${weight.toPrecision(4)}` });
      if (weight) cell.style.background = `color-mix(in srgb, var(--accent) ${Math.round(35 + 65 * weight / largest)}%, var(--grid))`;
      cells.append(cell);
      last = Math.max(last, position);
    }
    holder.append(make("span", branch), cells);
  }
  const axis = make("div", null, { class: "axis" });
  axis.append(make("span", "fork point"), make("span", `${tokens(last)} tokens`));
  holder.append(axis);
  return holder;
}

function grid(columns, rows) {
  const table = make("table");
  const head = make("tr");
  for (const name of columns) head.append(make("th", name, { scope: "col" }));
  table.append(make("thead"));
  table.tHead.append(head);
  const body = make("tbody");
  for (const row of rows) {
    const line = make("tr");
    row.forEach((cell) => line.append(make("td", cell)));
    body.append(line);
  }
  table.append(body);
  const scroll = make("div", null, { class: "scroll" });
  scroll.append(table);
  return scroll;
}

function detail(name) {
  const content = query("#detail-content");
  content.replaceChildren();
  const soup = data.soups[name];
  const checkpoint = data.checkpoints[name];
  if (soup) {
    content.append(make("h2", soup.label, { id: "detail-title" }), make("p", soup.strategy, { class: "small" }));
    const known = [["branches", soup.members.join(", ")], ["K", soup.k], ["checkpoints", soup.size], ["horizon", tokens(soup.horizon)]];
    for (const [what, value] of Object.entries(soup.scores)) known.push([what, what.includes("accuracy") ? `${(100 * value).toFixed(2)} %` : value.toFixed(4)]);
    content.append(facts(known.filter(([, value]) => value !== null && value !== undefined && value !== "–" && value !== "")));
    if (soup.row.length) {
      content.append(make("h3", "Its row of W"), strip(soup.row));
      content.append(grid(["checkpoint", "tokens", "weight", "validation loss", "sha256"], soup.row.map(([key, weight]) => {
        const known = data.checkpoints[key] || [null, null, null, null, null];
        return [key, tokens(known[1]), weight.toPrecision(6), number(known[2], 4), known[4] ? known[4].slice(0, 16) : "–"];
      })));
    } else content.append(make("p", "The sweep's record keeps the shape of this row, not its weights.", { class: "small" }));
  } else if (checkpoint) {
    const [branch, position, loss, accuracy, hash] = checkpoint;
    content.append(make("h2", name, { id: "detail-title" }), make("p", "a raw checkpoint", { class: "small" }));
    content.append(facts([["branch", branch], ["tokens", tokens(position)], ["validation loss", number(loss, 4)], ["accuracy", accuracy === null ? "–" : `${(100 * accuracy).toFixed(2)} %`], ["sha256", hash || "–"]]));
    const within = Object.values(data.soups).filter((one) => one.row.some(([key]) => key === name));
    if (within.length) content.append(make("h3", "In these soups"), grid(["soup", "weight"], within.map((one) => [one.label, one.row.find(([key]) => key === name)[1].toPrecision(6)])));
  } else return;
  const dialog = query("#detail");
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

/* tables */
function sortBy(header) {
  const table = header.closest("table");
  const column = Array.from(header.parentElement.children).indexOf(header);
  const ascending = header.getAttribute("aria-sort") !== "ascending";
  all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const value = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const missing = (one) => one === "–" || Number.isNaN(one);
  const order = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (missing(x) || missing(y)) return missing(x) - missing(y); /* what is missing stays last */
    const sign = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return ascending ? sign : -sign;
  };
  table.tBodies[0].append(...Array.from(table.tBodies[0].rows).sort(order));
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (target.closest("#theme")) {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* a file may have no storage */ }
    return repaint();
  }
  if (target.closest(".copy")) {
    const code = query("code", target.closest(".command"));
    if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(() => { target.textContent = "copied"; });
    return undefined;
  }
  if (target.id === "detail") return target.close(); /* the backdrop */
  if (target.closest("dialog")) return undefined;
  const header = target.closest("thead th");
  if (header) return sortBy(header);
  const soup = target.closest("[data-soup]");
  if (soup) return detail(soup.dataset.soup);
  return undefined;
});

/* paper is white */
let before = null;
let folded = [];
addEventListener("beforeprint", () => {
  before = root.dataset.theme;
  root.dataset.theme = "light";
  folded = all("details:not([open])");
  folded.forEach((one) => { one.open = true; }); /* paper cannot unfold */
  for (const element of all(".plot:not([data-drawn])")) draw(element); /* nor wait */
  for (const element of all(".plot[data-drawn]")) Plotly.relayout(element, themed(data.figures[element.dataset.figure].layout, 640));
});
addEventListener("afterprint", () => {
  if (before) root.dataset.theme = before; else delete root.dataset.theme;
  folded.forEach((one) => { one.open = false; });
  repaint();
});

/* live */
async function refresh() {
  const answer = await fetch("parts.json", { cache: "no-store" });
  if (!answer.ok) return;
  const { body, ...rest } = await answer.json();
  const at = scrollY;
  const open = all("details[open]").map((one) => one.id);
  const kept = new Map(all(".plot[data-drawn]").map((element) => [element.id, element]));
  const fresh = make("template");
  fresh.innerHTML = body;
  for (const element of all(".plot", fresh.content)) {
    const old = kept.get(element.id);
    if (old) {
      old.setAttribute("aria-label", element.getAttribute("aria-label"));
      element.replaceWith(old); /* keeps zoom and hover */
    }
  }
  data = rest;
  query("#body").replaceChildren(fresh.content);
  open.forEach((id) => { const one = document.getElementById(id); if (one) one.open = true; });
  query("#live").hidden = false;
  scrollTo({ top: at, behavior: "instant" });
  root.dataset.version = String(Number(root.dataset.version || 0) + 1);
  await drawAll();
}
function follow() {
  const source = new EventSource(`events?since=${encodeURIComponent(document.body.dataset.live)}`);
  const mark = (lost) => {
    const sign = query("#live");
    sign.hidden = false;
    sign.classList.toggle("lost", lost);
    sign.textContent = lost ? "connection lost" : "live";
  };
  source.addEventListener("open", () => mark(false));
  source.addEventListener("error", () => mark(true));
  source.addEventListener("changed", refresh);
}

if ("live" in document.body.dataset) follow();
drawAll();
