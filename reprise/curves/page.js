// Reading and zoom of the charts. Without it the page shows and prints the same curves.
"use strict";
for (const figure of document.querySelectorAll(".chart")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const plot = figure.querySelector(".plot");
  const cursor = figure.querySelector(".cursor");
  const output = figure.querySelector("output");
  const said = output.textContent;
  const ticks = figure.querySelectorAll(".tick.x");
  const span = Math.max(data.last - data.first, 1e-9);
  let left = 0, width = 1, at = 1;
  const draw = () => {
    plot.setAttribute("viewBox", `${left * 1000} 0 ${width * 1000} 1000`);
    ticks.forEach((tick, i) => {
      tick.textContent = (data.first + span * (left + width * i / (ticks.length - 1))).toFixed(0);
    });
  };
  const read = (share) => {
    at = Math.min(1, Math.max(0, share));
    const step = Math.round(data.first + span * at);
    const parts = [];
    for (const curve of data.curves) {
      let best = -1;
      for (let i = 0; i < curve.steps.length; i++) {
        if (best < 0 || Math.abs(curve.steps[i] - step) < Math.abs(curve.steps[best] - step)) best = i;
      }
      if (best >= 0 && Math.abs(curve.steps[best] - step) <= span / 20 + 1) {
        parts.push(`${curve.name} ${curve.values[best]}`);
      }
    }
    const x = (step - data.first) / span * 1000;
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    output.textContent = `step ${step}: ${parts.join(", ")}`;
  };
  const zoom = (factor, centre) => {
    const next = Math.min(1, Math.max(0.02, width * factor));
    left = Math.min(1 - next, Math.max(0, centre - (centre - left) * next / width));
    width = next;
    draw();
  };
  const share = (event) => {
    const box = plot.getBoundingClientRect();
    return left + width * (event.clientX - box.left) / box.width;
  };
  figure.addEventListener("pointermove", (event) => read(share(event)));
  figure.addEventListener("pointerleave", () => { output.textContent = said; });
  figure.addEventListener("dblclick", (event) => zoom(0.5, share(event)));
  figure.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, share(event));
  }, { passive: false });
  figure.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key in moves) read(at + moves[event.key] * width / 50);
    else if (event.key === "+") zoom(0.7, at);
    else if (event.key === "-") zoom(1 / 0.7, at);
    else if (event.key === "0") { left = 0; width = 1; draw(); } else return;
    event.preventDefault();
  });
}
