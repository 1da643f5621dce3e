// What the controls of interactive.html.j2 do, and its two pictures. vl_convert puts vegaEmbed and lodashDebounce in scope.
const block = document.getElementById("answers");
const told = JSON.parse(document.getElementById("answers-data").textContent);
const { trials, columns, numbers, axes, models, looks, x, y } = told;
const find = (selector) => block.querySelector(selector);
const MOST_ROWS = 100;
const BLACK = "#1a1a1a", GREY = "#666666";

const format = (field, value) => (value === null ? "—" : numbers.includes(field) ? value.toFixed(4) : value);
const tooltip = columns.map(([field, title]) => ({
  field, title: title.replaceAll("\\", ""), ...(numbers.includes(field) ? { type: "quantitative", format: ".4f" } : { type: "nominal" }),
}));
const look = (kind, key) => ({
  field: kind, type: key === "fill" ? "ordinal" : "nominal", legend: null,
  scale: { domain: looks[kind].map((one) => one.name), range: looks[kind].map((one) => one[key]) },
});
const axis = ({ field, title, reverse }) => ({
  field, title: title.split(", "), type: "quantitative", axis: { tickCount: 6 }, scale: { zero: false, nice: false, padding: 14, reverse },
});
const common = {
  width: "container", autosize: { type: "fit-x", resize: true },
  config: {
    font: "system-ui, sans-serif", view: { stroke: null },
    axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridColor: "#eeeeee", labelOverlap: true },
  },
};

function drawCloud() {
  const place = { x: axis({ ...x, reverse: x.sign < 0 }), y: axis(y) };
  const floor = { data: { name: "models" }, transform: [{ filter: "datum.role === 'floor'" }] };
  const stars = { data: { name: "models" }, transform: [{ filter: "datum.role !== 'floor'" }] };
  const edge = { data: { name: "ends" }, transform: [{ filter: "datum.significant" }], encoding: { x: place.x } };
  const star = "M0,-1L.22,-.31L.95,-.31L.36,.12L.59,.81L0,.38L-.59,.81L-.36,.12L-.95,-.31L-.22,-.31Z";
  return {
    description: `${x.title} against ${y.title}; the list below has every trial as text`,
    ...common, height: 310, params: [{ name: "here", value: "" }],
    layer: [
      { data: { name: "ends" }, mark: { type: "point", opacity: 0, tooltip: null }, encoding: place },
      { ...edge, mark: { type: "rule", color: GREY, strokeDash: [2, 3] } },
      { ...edge, mark: { type: "text", align: "right", baseline: "top", dx: -4, y: 2, fontSize: 11, color: GREY, text: "p = 0.05" } },
      { ...floor, mark: { type: "rule", color: GREY, strokeDash: [6, 4] }, encoding: { y: place.y } },
      {
        ...floor, mark: { type: "text", align: "right", baseline: "bottom", dx: -4, fontSize: 11, color: GREY },
        encoding: { y: place.y, x: { value: "width" }, text: { field: "label" } },
      },
      {
        data: { name: "trials" }, params: [{ name: "region", select: "interval" }], mark: { type: "point", strokeWidth: 1.4 },
        encoding: {
          ...place, tooltip, fill: look("method", "colour"), stroke: look("method", "colour"), shape: look("method", "path"),
          fillOpacity: look("rectifier", "fill"), opacity: { condition: { param: "region", value: 0.9 }, value: 0.15 },
          size: { condition: [{ test: "datum.id === here", value: 500 }, { test: "datum.chosen", value: 140 }], value: 45 },
        },
      },
      {
        ...stars, mark: { type: "point", shape: star, size: 300, strokeWidth: 1.2, stroke: BLACK, tooltip: null },
        encoding: { ...place, fill: { condition: { test: "datum.role === 'original'", value: BLACK }, value: "white" } },
      },
      { ...stars, mark: { type: "text", dy: -15, fontSize: 11, color: BLACK }, encoding: { ...place, text: { field: "label" } } },
    ],
  };
}

function drawLines() {
  const across = (field) => ({ field, type: "quantitative", axis: null, scale: { domain: [-0.3, axes.length - 0.7], nice: false } });
  const up = (field) => ({ field, type: "quantitative", axis: null, scale: { domain: [-0.32, 1.1], nice: false } });
  const ticks = axes.flatMap((one, number) => one.ticks.map(([label, at]) => ({ number, label, at })));
  const heads = axes.map((one, number) => ({ number, label: one.title, at: 1.1, low: 0, high: 1 }));
  return {
    description: "Parallel coordinates: a line for each trial over the settings that differ and the goals",
    ...common, height: 300, params: [{ name: "goal", value: y.field }],
    layer: [
      {
        data: { name: "trials" },
        transform: [
          { calculate: "datum[goal]", as: "colour" },
          { calculate: `sequence(0, ${axes.length - 1})`, as: "left" },
          { calculate: "slice(datum.heights, 0, -1)", as: "from" },
          { calculate: "slice(datum.heights, 1)", as: "to" },
          { flatten: ["left", "from", "to"] },
          { calculate: "datum.left + 1", as: "right" },
        ],
        mark: { type: "rule", strokeWidth: 1.3, opacity: 0.6 },
        encoding: {
          x: across("left"), x2: { field: "right" }, y: up("from"), y2: { field: "to" }, tooltip,
          color: {
            field: "colour", type: "quantitative", scale: { scheme: { name: "viridis", extent: [0, 0.85] }, zero: false },
            legend: { orient: "bottom", title: null, gradientLength: 240 },
          },
        },
      },
      { data: { values: heads }, mark: { type: "rule", color: GREY }, encoding: { x: across("number"), y: up("low"), y2: { field: "high" } } },
      ...[{ stroke: "white", strokeWidth: 4, strokeJoin: "round" }, { color: BLACK }].map((ink) => ({
        data: { values: ticks }, mark: { type: "text", align: "right", dx: -5, fontSize: 11, ...ink },
        encoding: { x: across("number"), y: up("at"), text: { field: "label", type: "nominal" } },
      })),
      {
        data: { values: heads }, mark: { type: "text", fontSize: 12, fontWeight: "bold", color: BLACK },
        encoding: { x: across("number"), y: up("at"), text: { field: "label", type: "nominal" } },
      },
    ],
  };
}

block.hidden = false;
const options = { mode: "vega-lite", renderer: "canvas", actions: false, logLevel: 1 };
const cloud = (await vegaEmbed(find("#cloud"), drawCloud(), options)).view;
const lines = axes.length > 1 ? (await vegaEmbed(find("#lines"), drawLines(), options)).view : null;
const bounds = [...block.querySelectorAll("[data-bound]")];
let kept = [], region = {};

function element(name, text, ...inside) {
  const made = document.createElement(name);
  made.append(text, ...inside);
  return made;
}

function filterTrials() {
  const on = (kind) => new Set([...block.querySelectorAll(`[name=${kind}]:checked`)].map((box) => box.value));
  const [method, rectifier, split] = ["method", "rectifier", "split"].map(on);
  const here = (one) => !split.size || split.has(one.split);
  kept = trials.filter((one) => here(one) && method.has(one.method) && rectifier.has(one.rectifier));
  const all = [...trials, ...models].filter(here);
  const ends = [x, y].map(({ field }) => all.map((one) => one[field]).filter((value) => value !== undefined));
  const corners = [Math.min, Math.max].map((end) => ({ [x.field]: end(...ends[0]), [y.field]: end(...ends[1]) }));
  if (told.significant !== null) corners.push({ ...corners[0], [x.field]: told.significant, significant: true });
  cloud.data("trials", kept).data("models", models.filter(here)).data("ends", corners).run();
  listTrials();
}

function listTrials() {
  const within = (one) => Object.entries(region).every(([field, [low, high]]) => {
    const slack = 1e-9 * (high - low); // a typed bound comes back from its place in the picture, with rounding
    return one[field] >= low - slack && one[field] <= high + slack;
  });
  const found = kept.filter(within).sort((a, b) => x.sign * (b[x.field] - a[x.field]));
  lines?.data("trials", found.map((one) => ({ ...one }))).run();
  const more = found.length > MOST_ROWS ? `; the first ${MOST_ROWS} are listed, a smaller region shows the others` : "";
  const where = Object.keys(region).length ? "in the region" : "shown";
  find("#count").textContent = `${found.length} of ${trials.length} trials ${where}${more}.`;
  find("tbody").replaceChildren(...found.slice(0, MOST_ROWS).map(listTrial));
}

function listTrial(one) {
  const row = element("tr", "", ...columns.map(([field]) => element("td", format(field, one[field]))));
  row.dataset.id = one.id;
  if (!one.export) {
    row.prepend(element("td", "weights not kept"));
    row.append(element("td", "cannot run again by itself: run its sweep with --new --keep all"));
    return row;
  }
  const command = element("code", `python -m trainables.export ${one.id} ${told.where}--output exported/${one.id}`);
  const button = element("button", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", `Copy the command that exports ${one.id}`);
  button.onclick = async () => {
    getSelection().selectAllChildren(command);
    await navigator.clipboard?.writeText(command.textContent).then(() => (button.textContent = "Copied"), () => {});
  };
  row.prepend(element("td", button));
  row.append(element("td", command));
  return row;
}

function pointAt(event) {
  const row = event.target.closest("tr");
  for (const other of block.querySelectorAll("tr.here")) other.classList.remove("here");
  row?.classList.add("here");
  cloud.signal("here", row?.dataset.id ?? "").run();
}

function typeBounds() {
  const ends = [x, y].map(({ field }, number) => {
    const scale = cloud.scale(number ? "y" : "x"), typed = bounds.slice(2 * number, 2 * number + 2).map((box) => box.value);
    const [low, high] = scale.domain();
    return [typed[0] === "" ? low : +typed[0], typed[1] === "" ? high : +typed[1]].map((value) => scale(value));
  });
  const none = bounds.every((box) => box.value === "");
  cloud.signal("region_x", none ? [0, 0] : ends[0]).signal("region_y", none ? [0, 0] : ends[1]).run();
}

const readRegion = lodashDebounce((found) => {
  region = found;
  if (Object.keys(region).length) find("details").open = true;
  bounds.forEach((box, place) => {
    const ends = found[(place < 2 ? x : y).field];
    if (box !== document.activeElement) box.value = ends ? +ends[place % 2].toFixed(4) : "";
  });
  listTrials();
}, 150);

find("thead").append(element("tr", "", ...["Export", ...columns.map(([, title]) => title), "Command"].map((title) => element("th", title))));
find("details").ontoggle = () => window.dispatchEvent(new Event("resize")); // a folded picture has no width
for (const form of block.querySelectorAll("form")) form.onsubmit = (event) => event.preventDefault();
block.querySelector("form").onchange = filterTrials;
for (const box of bounds) box.onchange = typeBounds;
find("[type=reset]").onclick = () => setTimeout(typeBounds);
if (lines) find("select").onchange = (event) => lines.signal("goal", event.target.value).run();
for (const kind of ["mouseover", "focusin"]) find("tbody").addEventListener(kind, pointAt);
cloud.addSignalListener("region", (_, found) => readRegion({ ...found }));
filterTrials();
