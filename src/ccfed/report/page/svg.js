// What all figures share: elements, scales, numbers as one reads them, and the download of what is drawn.

const data = JSON.parse(document.getElementById("data").textContent);

// `hidden` lines are not drawn, the `raised` one stands out, `band` says what is drawn around a mean, and one
// floating-point operation is taken to need `joules`.
const page = { hidden: new Set(), raised: null, band: "confidence", joules: 20e-12, figures: [] };

function html(name, attributes = {}, ...inside) {
  return filled(document.createElement(name), attributes, inside);
}

function svg(name, attributes = {}, ...inside) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, inside);
}

function filled(node, attributes, inside) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...inside);
  return node;
}

const styled = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Lines differ in colour and in dashes. FedAvg's, if there is just one, has the colour of the text; CC-FedAvg, which most
// pages are about, has the first colour and a full line.
const COLOURS = 7;
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 2 1 2 1 2", "12 4", "4 4"];
const looks = new Map();
const alone = data.lines.filter((line) => line.method === "fedavg").length === 1;
for (const first of [true, false]) {
  data.lines.forEach((line, i) => {
    if (alone && line.method === "fedavg") looks.set(i, { colour: "var(--line-0)", dash: "6 2 1 2" });
    else if ((line.method === "cc-fedavg") === first) {
      const k = [...looks.values()].filter((look) => look.colour !== "var(--line-0)").length;
      looks.set(i, { colour: `var(--line-${1 + (k % COLOURS)})`, dash: DASHES[(k + Math.floor(k / COLOURS)) % DASHES.length] });
    }
  });
}
const lookOf = (i) => looks.get(i);

function swatch(i) {
  const { colour, dash } = lookOf(i);
  const stroke = { class: "curve", style: `stroke:${colour}`, "stroke-dasharray": dash };
  const frame = { class: "key", width: 26, height: 10, "aria-hidden": "true" };
  return svg("svg", frame, svg("line", { x1: 1, x2: 25, y1: 5, y2: 5, ...stroke }));
}

function scale([from, to], [first, last]) {
  const factor = to > from ? (last - first) / (to - from) : 0;
  const there = (value) => first + (value - from) * factor;
  there.back = (place) => (factor ? from + (place - first) / factor : from);
  return there;
}

// About so many round numbers from one number to another, none nearer to the next than `least`.
function ticks(from, to, about, least = 0) {
  const rough = (to - from) / Math.max(about, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const off = (s) => Math.abs(Math.log(s / rough));
  const step = Math.max([1, 2, 5, 10].map((m) => m * power).reduce((best, s) => (off(s) < off(best) ? s : best)), least);
  const found = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9; k++) found.push(k * step || 0);
  return found;
}

const trimmed = (value, digits) => String(Number(value.toPrecision(digits)));
const grouped = (value) => Math.round(value).toLocaleString("en-GB");
const percent = (value) => `${value.toFixed(1)} %`;
const wholes = (from, size) => (size > 1 ? `${grouped(from)}–${grouped(from + size - 1)}` : grouped(from));

function inUnits(value, unit) {
  if (!value) return `0 ${unit}`;
  const prefixes = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"]];
  const [factor, prefix] = prefixes.find(([f]) => Math.abs(value) >= f * 0.9995) ?? prefixes.at(-1);
  return `${trimmed(value / factor, 3)} ${prefix}${unit}`;
}

const inThousands = (value) => (Math.abs(value) < 1e4 ? grouped(value) : inUnits(value, "").trim());

function csv(head, rows) {
  // A spreadsheet would take a text that starts so for a formula.
  const safe = (value) => (typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? ""));
  const cell = (value) => (/[",\r\n]/.test(safe(value)) ? `"${safe(value).replaceAll('"', '""')}"` : safe(value));
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function download(name, kind, text) {
  const link = html("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A figure with its caption and its downloads. `draw(plot)` fills the empty `plot`; `table()` gives [head, rows].
function figure(name, caption, draw, table) {
  const plot = html("div", { class: "plot" });
  const spoken = html("p", { class: "spoken", "aria-live": "polite" });
  const button = (text, title, onclick) => html("button", { type: "button", title, onclick }, text);
  const head = html("span", {}, caption);
  const made = {
    node: html("figure", { id: `figure-${name}` }),
    draw() {
      plot.replaceChildren();
      draw(plot, (text) => (spoken.textContent = text));
    },
    entitle: (text) => (head.textContent = text),
  };
  const saves = html(
    "span", { class: "saves" },
    button("CSV", `Download the numbers of this figure: ${caption}`, () => download(`${name}.csv`, "text/csv", csv(...table()))),
    button("SVG", `Download this figure as a picture: ${caption}`, () => savePicture(name, plot, made)),
  );
  made.node.append(html("figcaption", {}, head, saves), plot, spoken);
  page.figures.push(made);
  return made;
}

// A picture for a paper: always in light colours, with the style inside.
function savePicture(name, plot, made) {
  if (!plot.querySelector("svg.figure")) return;
  const root = document.documentElement;
  const theme = root.dataset.theme;
  root.dataset.theme = "light";
  made.draw();
  const drawn = plot.querySelector("svg.figure").cloneNode(true);
  const variables = ["ink", "quiet", "grid", "paper", "full", ...Array.from({ length: COLOURS + 1 }, (_, i) => `line-${i}`)];
  const values = variables.map((each) => `--${each}:${styled(`--${each}`)}`).join(";");
  const style = document.getElementById("figure-style").textContent;
  drawn.prepend(svg("style", {}, `svg{${values};font-family:sans-serif}${style}`));
  drawn.querySelectorAll(".cursor").forEach((node) => node.remove());
  if (drawn.querySelector(".curve")) addKey(drawn);
  if (theme) root.dataset.theme = theme;
  else delete root.dataset.theme;
  made.draw();
  download(`${name}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(drawn));
}

// What the buttons above the figure tell on the page is written below it in a picture.
function addKey(drawn) {
  const [width, height] = ["width", "height"].map((name) => Number(drawn.getAttribute(name)));
  let [x, y] = [52, height + 14];
  data.lines.forEach((line, i) => {
    if (page.hidden.has(i)) return;
    const wide = 34 + 7.2 * line.label.length + 16;
    if (x > 52 && x + wide > width) [x, y] = [52, y + 20];
    const { colour, dash } = lookOf(i);
    const key = { class: "curve", style: `stroke:${colour}`, "stroke-dasharray": dash };
    drawn.append(svg("line", { ...key, x1: x, x2: x + 26, y1: y, y2: y }), text(x + 33, y + 4, line.label, "start"));
    x += wide;
  });
  drawn.setAttribute("height", y + 14);
  drawn.setAttribute("viewBox", `0 0 ${width} ${y + 14}`);
}

function drawAll(which = () => true) {
  for (const each of page.figures.filter(which)) each.draw();
}

// What a figure tells where the pointer is: a mouse hovers, a finger taps, and what it tapped stays until it scrolls.
function listen(drawn, at, leave) {
  for (const kind of ["pointermove", "pointerdown"]) {
    drawn.addEventListener(kind, (event) => {
      const box = drawn.getBoundingClientRect();
      at(event.clientX - box.left, event.clientY - box.top, [event.clientX, event.clientY]);
    });
  }
  drawn.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && leave());
  drawn.addEventListener("blur", leave);
}

function missing(plot, words) {
  plot.append(html("p", { class: "quiet" }, words));
}

function picture(plot, width, height, label) {
  const frame = { class: "figure", xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` };
  const drawn = svg("svg", { ...frame, role: "img", tabindex: 0, "aria-label": label });
  plot.append(drawn);
  return drawn;
}

function text(x, y, words, anchor = "middle", more = {}) {
  return svg("text", { x, y, "text-anchor": anchor, ...more }, words);
}

// The box beside the pointer, shared by all figures.
const tip = html("div", { class: "tip", hidden: "" });
function showTip(x, y, ...rows) {
  tip.replaceChildren(...rows);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - box.height - 4))}px`;
}
const hideTip = () => (tip.hidden = true);

function choice(label, options, value, onchange) {
  const made = options.map(([key, words]) => html("option", { value: key, ...(key === value ? { selected: "" } : {}) }, words));
  return html("label", { class: "choice" }, `${label} `, html("select", { onchange: (event) => onchange(event.target.value) }, ...made));
}
