"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;

function themed() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => printing
    ? { "--ink": "#000", "--line": "#bbb" }[name] : style.getPropertyValue(name).trim();
  const ink = colour("--ink"), line = colour("--line");
  const changes = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    "font.color": ink };
  for (const axis of ["xaxis", "xaxis2", "yaxis", "yaxis2"]) {
    changes[axis + ".gridcolor"] = line;
    changes[axis + ".linecolor"] = line;
    changes[axis + ".zerolinecolor"] = line;
  }
  return changes;
}

// Plotly's legends scroll when a page is narrow; these wrap. A click hides and shows a trace.
function legend(div) {
  const box = document.createElement("div");
  box.className = "legend";
  for (const [index, trace] of figures[div.id].data.entries()) {
    if (!trace.name || trace.showlegend === false) continue;
    const marker = trace.marker || {}, line = marker.line || {};
    const entry = document.createElement("button");
    const swatch = document.createElement("i");
    swatch.style.background = typeof marker.color === "string" ? marker.color
      : line.color || (trace.line || {}).color;
    if (marker.symbol === "line-ns") swatch.style.background = line.color;
    const text = new DOMParser().parseFromString(trace.name, "text/html").body.textContent;
    entry.append(swatch, text);
    entry.setAttribute("aria-pressed", "true");
    entry.addEventListener("click", () => {
      const on = entry.getAttribute("aria-pressed") !== "true";
      entry.setAttribute("aria-pressed", on);
      Plotly.restyle(div, { visible: on }, [index]);
    });
    box.append(entry);
  }
  if (box.childElementCount > 1) div.after(box);
}

function draw(div) {
  const { data, layout } = figures[div.id];
  layout.height -= layout.meta.legend_px;
  div.style.height = layout.height + "px";
  layout.showlegend = false;
  const known = Object.fromEntries(Object.entries(themed()).filter(
    ([key]) => !/^[xy]axis/.test(key) || layout[key.split(".")[0]]));
  legend(div);
  return Plotly.newPlot(div, data, layout, { responsive: true, displaylogo: false,
    displayModeBar: false }).then(() => Plotly.relayout(div, known));
}

function drawn() { return [...document.querySelectorAll(".figure.js-plotly-plot")]; }

function retheme() {
  for (const div of drawn()) {
    const changes = themed();
    for (const key of Object.keys(changes))
      if (/^[xy]axis/.test(key) && !figures[div.id].layout[key.split(".")[0]]) delete changes[key];
    Plotly.relayout(div, changes);
  }
}

function show(root) {
  return Promise.all([...root.querySelectorAll(".figure")]
    .filter((div) => !div.classList.contains("js-plotly-plot") && div.offsetParent !== null)
    .map(draw));
}

for (const details of document.querySelectorAll("details"))
  details.addEventListener("toggle", () => { if (details.open) show(details); });

for (const button of document.querySelectorAll("button[data-copy]"))
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const now = root.dataset.theme || (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  retheme();
});
dark.addEventListener("change", retheme);
// The page is laid out for paper only after this event: figures get a width that fits A4 and Letter.
addEventListener("beforeprint", () => {
  printing = true;
  retheme();
  for (const div of drawn()) Plotly.relayout(div, { width: 680 });
});
addEventListener("afterprint", () => {
  printing = false;
  retheme();
  for (const div of drawn())
    Plotly.relayout(div, { width: null }).then(() => Plotly.Plots.resize(div));
});
show(document).then(() => { document.body.dataset.ready = "true"; });
