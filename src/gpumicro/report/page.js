"use strict";
const tips = JSON.parse(document.getElementById("tips").textContent);
const tip = document.getElementById("tip");
function show(element, x, y) {
  tip.textContent = tips[element.id];
  tip.style.display = "block";
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 4)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
}
for (const id of Object.keys(tips)) {
  const element = document.getElementById(id);
  if (!element) continue;
  element.dataset.tip = "";
  element.addEventListener("pointermove", (event) => show(element, event.clientX, event.clientY));
  element.addEventListener("pointerdown", (event) => show(element, event.clientX, event.clientY));
  element.addEventListener("pointerleave", () => { tip.style.display = "none"; });
}
function sort(header) {
  const body = header.closest("table").tBodies[0], column = header.cellIndex;
  const down = header.getAttribute("aria-sort") === "ascending";
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => {
    const x = key(a), y = key(b), numbers = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
    return numbers ? x - y : x.localeCompare(y, undefined, { numeric: true });
  };
  [...body.rows].sort((a, b) => (down ? -1 : 1) * compare(a, b)).forEach((row) => body.append(row));
}
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button.parentElement));
