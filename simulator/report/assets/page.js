"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const byId = (id) => document.getElementById(id);
  const config = { displaylogo: false, responsive: true, modeBarButtons: [["toImage", "resetScale2d"]] };

  function themed(layout) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true };
    const full = {
      margin: { l: 56, r: 12, t: 8, b: 44 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), family: "inherit", size: 12.5 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      hoverlabel: { namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--dim"), activecolor: colour("--link") },
      hovermode: "closest",
      ...layout,
    };
    for (const key of Object.keys(full)) {
      if (/^[xy]axis/.test(key)) full[key] = { ...axis, ...full[key] };
    }
    return full;
  }

  const draw = (name, figure) => {
    const target = byId(`figure-${name}`);
    if (target) Plotly.react(target, figure.data, themed(figure.layout), config);
  };

  function drawDetail() {
    const policy = byId("policy");
    if (!policy) return;
    const index = Number(policy.value);
    draw("allocation", data.allocations[byId("stack").value][index]);
  }

  function drawAll() {
    for (const [name, figure] of Object.entries(data.figures)) draw(name, figure);
    drawDetail();
  }

  for (const id of ["policy", "stack"]) {
    if (byId(id)) byId(id).addEventListener("change", drawDetail);
  }
  dark.addEventListener("change", drawAll);
  drawAll();
})();
