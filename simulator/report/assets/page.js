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
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
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

  function ganttFigure(chart) {
    const height = chart.lane.map((lane) => (lane < 0 ? 0.86 : 0.42));
    const middle = chart.row.map((row, i) => (chart.lane[i] < 0 ? row : row - 0.215 + 0.43 * Math.min(chart.lane[i], 1)));
    const hour = (value) => value.toLocaleString("en", { maximumFractionDigits: 2 });
    const who = (job, i) => chart.of[i] === 1
      ? `<b>${chart.jobs[job]}</b><br>${chart.types[job]}`
      : `<b>${chart.leases[i]} leases of ${chart.of[i]} jobs</b><br>longest: ${chart.jobs[job]}`;
    const rest = (i) => {
      const parts = [];
      if (chart.of[i] === 1) parts.push(chart.reason[i]);
      if (chart.of[i] === 1 && chart.leases[i] > 1) parts.push(`${chart.leases[i]} leases`);
      if (chart.held[i] < chart.length[i]) parts.push(`held ${Math.round(100 * chart.held[i] / chart.length[i])} % of it`);
      return parts.map((part) => `, ${part}`).join("");
    };
    const text = chart.job.map((job, i) =>
      `${who(job, i)}<br>${chart.rows[chart.row[i]]}` +
      `<br>${hour(chart.start[i])} to ${hour(chart.start[i] + chart.length[i])} ${chart.unit}${rest(i)}`);
    const rows = chart.rows.length;
    const layout = {
      height: Math.max(220, Math.min(1100, 70 + 17 * rows)),
      bargap: 0,
      barmode: "overlay",
      showlegend: false,
      xaxis: { title: { text: `time (${chart.unit})` }, range: chart.range },
      yaxis: { tickmode: "array", tickvals: chart.rows.map((_, i) => i), ticktext: chart.rows, range: [rows - 0.5, -0.5], showgrid: false, zeroline: false, tickfont: { size: 10.5 } },
    };
    const trace = {
      type: "bar", orientation: "h", base: chart.start, x: chart.length, y: middle, width: height,
      marker: { color: chart.job.map((job) => data.palette[job % data.palette.length]), opacity: chart.of.map((jobs) => (jobs === 1 ? 1 : 0.45)), line: { width: chart.job.length > 800 ? 0 : 0.4, color: "rgba(0,0,0,.45)" } },
      hovertext: text, hoverinfo: "text",
    };
    return { data: [trace], layout };
  }

  function drawDetail() {
    const policy = byId("policy");
    if (!policy) return;
    const index = Number(policy.value);
    draw("allocation", data.allocations[byId("stack").value][index]);
    const chart = data.gantts[index];
    const figure = ganttFigure(chart);
    byId("figure-gantt").style.height = `${figure.layout.height}px`;
    draw("gantt", figure);
    byId("gantt-note").textContent = chart.note;
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
