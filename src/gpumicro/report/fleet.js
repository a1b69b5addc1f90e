"use strict";
const fleet = JSON.parse(document.getElementById("fleet").textContent);
const map = document.getElementById("map"), what = document.getElementById("what"), find = document.getElementById("find");
const detail = document.getElementById("detail"), FULL = 1000; // parts in ten thousand: full colour at 10%
let squares = [], size = 8, chosen = -1, kept = -1;
what.add(new Option("the slowest of all ceilings", "-1"));
fleet.names.forEach((name, i) => what.add(new Option(name, i)));

function worst(node) { // the part from the median, and whether it is out of line, by the chosen ceiling or the worst one
  const which = Number(what.value);
  let part = null, out = false;
  for (const [, , parts, outliers] of node[3]) {
    const mine = which < 0 ? Math.min(...parts.filter((p) => p !== null)) : parts[which];
    if (mine !== null && isFinite(mine) && (part === null || mine < part)) part = mine;
    out ||= which < 0 ? outliers.length > 0 : outliers.includes(which);
  }
  return [part, out];
}
function channels(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim().slice(1);
  const long = hex.length === 3 ? [...hex].map((c) => c + c).join("") : hex;
  return [0, 2, 4].map((i) => parseInt(long.slice(i, i + 2), 16));
}
let colours = {};
function readColours() { for (const name of ["slow", "fast", "typical", "frame", "dim", "line"]) colours[name] = channels("--" + name); }
function colour(part) {
  const share = Math.min(1, Math.abs(part) / FULL), end = part < 0 ? colours.slow : colours.fast;
  return `rgb(${colours.typical.map((c, i) => Math.round(c + (end[i] - c) * share)).join(",")})`;
}
const css = (name) => `rgb(${colours[name].join(",")})`;
function place() { // squares in blocks of a rack, blocks in rows
  const width = map.clientWidth, count = fleet.nodes.length;
  size = count <= 64 ? 26 : count <= 400 ? 18 : count <= 1500 ? 13 : count <= 4000 ? 10 : 8;
  const step = size + 1, named = fleet.racks.length > 1, label = named ? 13 : 0;
  const racks = fleet.racks.map(() => []);
  fleet.nodes.forEach((node, i) => racks[node[1]].push(i));
  squares = new Array(count);
  const labels = [];
  let x = 0, y = 0, tallest = 0;
  racks.forEach((members, rack) => {
    const text = fleet.racks[rack] || "no rack", wide = Math.max(1, Math.floor(width / step));
    const columns = named ? Math.min(wide, Math.max(Math.ceil(Math.sqrt(2 * members.length)), Math.ceil(6.3 * text.length / step))) : wide;
    const block = columns * step, rows = Math.ceil(members.length / columns);
    if (x > 0 && x + block > width) { x = 0; y += tallest + 8; tallest = 0; }
    if (named) labels.push([text, x, y + 10]);
    members.forEach((node, i) => { squares[node] = [x + (i % columns) * step, y + label + Math.floor(i / columns) * step]; });
    x += block + 8;
    tallest = Math.max(tallest, label + rows * step);
  });
  return [width, y + tallest + 4, labels];
}
function draw() {
  readColours();
  const [width, height, labels] = place(), dense = devicePixelRatio || 1, pen = map.getContext("2d");
  map.width = width * dense; map.height = height * dense; map.style.height = height + "px";
  pen.scale(dense, dense);
  pen.font = "10px system-ui, sans-serif"; pen.fillStyle = css("dim");
  for (const [text, x, y] of labels) pen.fillText(text, x, y);
  const sought = find.value.trim().toLowerCase();
  fleet.nodes.forEach((node, i) => {
    const [x, y] = squares[i], [part, out] = worst(node);
    pen.globalAlpha = sought && !node[0].toLowerCase().includes(sought) ? 0.15 : 1;
    if (part === null) { pen.strokeStyle = css("line"); pen.strokeRect(x + .5, y + .5, size - 1, size - 1); }
    else { pen.fillStyle = colour(part); pen.fillRect(x, y, size, size); }
    if (out) { pen.lineWidth = size > 10 ? 2 : 1; pen.strokeStyle = css("frame"); pen.strokeRect(x + .5, y + .5, size - 1, size - 1); pen.lineWidth = 1; }
    if (node[2]) { pen.strokeStyle = css("frame"); pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + size, y + size); pen.stroke(); }
    if (i === chosen) { pen.strokeStyle = css("fast"); pen.lineWidth = 2; pen.strokeRect(x - 1, y - 1, size + 2, size + 2); pen.lineWidth = 1; }
  });
  pen.globalAlpha = 1;
}
function drawScale() {
  const canvas = document.getElementById("scale"), pen = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x++) { pen.fillStyle = colour((x / canvas.width * 2 - 1) * FULL); pen.fillRect(x, 0, 1, canvas.height); }
}
const percent = (part) => (part > 0 ? "+" : "") + (part / 100).toFixed(1) + "%";
function describe(i) {
  const node = fleet.nodes[i], lines = [node[0] + (fleet.racks[node[1]] ? `, rack ${fleet.racks[node[1]]}` : "") + (node[2] ? ": below a threshold" : "")];
  const short = node[3].length > 1;
  for (const [device, model, parts, out] of node[3]) {
    const known = parts.map((part, k) => [part, k]).filter(([part]) => part !== null).sort((a, b) => a[0] - b[0]);
    const shown = known.filter(([, k], n) => out.includes(k) || n < (short ? 3 : 24));
    lines.push(`${device}${model >= 0 ? " " + fleet.models[model] : ""}: ` + (shown.map(([part, k]) => `${fleet.names[k]} ${percent(part)}${out.includes(k) ? " (out of line)" : ""}`).join(", ") || "no figure"));
  }
  detail.textContent = lines.join("\n");
}
function choose(i) { if (i === chosen) return; chosen = i; if (i >= 0) describe(i); draw(); }
function under(event) {
  const box = map.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  return squares.findIndex(([a, b]) => x >= a && x <= a + size && y >= b && y <= b + size);
}
map.addEventListener("pointermove", (event) => { const i = under(event); if (i >= 0) choose(i); });
map.addEventListener("pointerleave", () => choose(kept));
map.addEventListener("click", (event) => { const i = under(event); if (i >= 0) { kept = i; choose(i); } });
map.addEventListener("keydown", (event) => {
  const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (move) { event.preventDefault(); kept = (chosen + move + fleet.nodes.length) % fleet.nodes.length; choose(kept); }
});
what.addEventListener("change", draw);
find.addEventListener("input", draw);
new ResizeObserver(draw).observe(map.parentElement);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { draw(); drawScale(); });
draw(); drawScale();
