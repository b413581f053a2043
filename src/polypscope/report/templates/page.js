"use strict";
// Copy buttons; and a click on a heading sorts its table, numbers by value and texts by name.
document.addEventListener("click", (event) => {
  const button = event.target.closest(".copy > button");
  if (button) {
    const text = button.parentElement.querySelector("pre").textContent;
    const done = () => { button.textContent = "Copied"; setTimeout(() => { button.textContent = "Copy"; }, 1500); };
    if (navigator.clipboard && window.isSecureContext) { navigator.clipboard.writeText(text).then(done); return; }
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select();
    document.execCommand("copy"); area.remove(); done();
    return;
  }
  const head = event.target.closest("tr.heads th");
  if (!head) return;
  const column = [...head.parentElement.children].indexOf(head);
  const body = head.closest("table").tBodies[0];
  const down = head.dataset.order !== "down";
  head.dataset.order = down ? "down" : "up";
  const key = (row) => { const cell = row.cells[column]; return cell.dataset.sort === undefined ? cell.textContent : Number(cell.dataset.sort); };
  const rows = [...body.rows].sort((a, b) => {
    const x = key(a), y = key(b);
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
    return down ? -order : order;
  });
  body.append(...rows);
});
