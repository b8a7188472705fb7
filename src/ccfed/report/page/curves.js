// Curves over rounds or over what was spent: one a line, the mean over its seeds, with a band around it.

// Student's t for a two-sided 95 % interval, for 1, 2, ... degrees of freedom.
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131];
const student = (freedom) => STUDENT[freedom - 1] ?? 1.96 + 2.5 / freedom;

const BANDS = [
  ["confidence", "95 % confidence of the mean"],
  ["deviation", "one standard deviation"],
  ["extremes", "lowest to highest seed"],
  ["seeds", "every seed by itself"],
];

// Two seeds say next to nothing of a mean: their range is shown instead.
if (data.lines.some((line) => line.accuracy.length === 2)) page.band = "extremes";

// Mean, and low and high end of the band, of one number a seed.
function summary(values, ceiling) {
  const told = values.filter((value) => value !== null);
  const n = told.length;
  if (!n) return { mean: null, low: null, high: null, n };
  const mean = told.reduce((sum, value) => sum + value, 0) / n;
  if (page.band === "extremes") return { mean, low: Math.min(...told), high: Math.max(...told), n };
  if (n < 2) return { mean, low: mean, high: mean, n };
  const deviation = Math.sqrt(told.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1));
  const reach = page.band === "confidence" ? (student(n - 1) * deviation) / Math.sqrt(n) : deviation;
  // Neither percent nor a loss goes below nought.
  return { mean, low: Math.max(mean - reach, Math.min(...told, 0)), high: Math.min(mean + reach, Math.max(...told, ceiling)), n };
}

const across = (columns, k) => columns.map((column) => column[k]);
const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Each seed's accuracy after the last round after which it was measured.
const lastAccuracies = (line) => line.accuracy.map((values) => values.findLast((value) => value !== null)).filter((value) => value !== undefined);

// The series of a figure: points of every line that is not hidden. `x(line, k)` is where its k-th point stands.
function seriesOf(column, x) {
  return data.lines.flatMap((line, i) => {
    if (page.hidden.has(i) || !line.rounds.length) return [];
    const points = line.rounds.map((round, k) => ({ x: x(line, k), round, ...summary(across(line[column], k), column === "accuracy" ? 100 : Infinity) }));
    const seeds = page.band === "seeds" && line[column].length > 1 ? line[column] : [];
    return [{ i, line, points: points.filter((p) => p.mean !== null && p.x !== null), seeds, x }];
  });
}

// `cost` names what stands across in the figure's table, or is null where that is the round.
function curveFigure({ name, caption, column, x, cost = () => null, xName, xFormat, yName, yFormat, logarithmic = () => false }) {
  const series = () => seriesOf(column, x);
  const spent = (value) => (cost() ? [value] : []);
  const means = () => series().flatMap(({ line, points }) =>
    points.map((p) => [line.label, p.round, ...spent(p.x), p.n, ...[p.mean, p.low, p.high].map((value) => trimmed(value, 6))]));
  const eachSeed = () => series().flatMap(({ line }) => line[column].flatMap((values, s) =>
    values.map((value, k) => [line.label, line.rounds[k], ...spent(x(line, k)), line.seeds[s], value])));
  const table = () => page.band === "seeds"
    ? [["line", "round", ...spent(cost()), "seed", column], eachSeed()]
    : [["line", "round", ...spent(cost()), "seeds", `${column}_mean`, `${column}_low`, `${column}_high`], means()];
  const draw = (plot, say) => drawCurves(plot, say, series(), { caption, xName: xName(), xFormat, yName, yFormat, log: logarithmic() });
  return Object.assign(figure(name, caption, draw, table), { curves: true });
}

let plotNumber = 0;
function drawCurves(plot, say, series, { caption, xName, xFormat, yName, yFormat, log }) {
  const width = Math.max(plot.clientWidth, 240);
  const height = Math.round(Math.min(Math.max(width * 0.62, 230), 380));
  const spoken = series.map(({ line, points }) => `${line.label} ${points.length ? yFormat(points.at(-1).mean) : "none"}`);
  const label = `${caption}. In the end: ${spoken.join("; ") || "nothing shown"}. Arrow keys read values.`;
  const told = series.flatMap(({ points, seeds }) => [...points.map((p) => p.mean), ...seeds.flat()]);
  const usable = told.filter((value) => value !== null && (!log || value > 0));
  const nobody = data.lines.every((line) => !line.rounds.length);
  if (!usable.length) return missing(plot, series.length ? "Nothing was measured yet." : nobody ? "No round has been played yet." : "No line is shown.");
  const drawn = picture(plot, width, height, label);

  const bend = log ? (value) => Math.log10(Math.max(value, 1e-12)) : (value) => value;
  const xs = series.flatMap(({ points }) => points.map((p) => p.x));
  const span = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))].map(bend);
  const [least, most] = span(usable);
  // Bands have room, but those of two seeds that differ much must not press all curves together.
  const room = (most - least || 1) * 0.3;
  const [bandLeast, bandMost] = span([...usable, ...series.flatMap(({ points }) => points.flatMap((p) => [p.low, p.high]))]);
  const [lowest, highest] = [Math.max(bandLeast, least - room), Math.min(bandMost, most + room)];
  const margin = (highest - lowest || 1) * 0.04;
  const bottom = log ? lowest - margin : Math.max(lowest - margin, Math.min(0, least));
  const top = highest + margin;
  const right = xs.reduce((a, b) => Math.max(a, b));
  const from = xs.reduce((a, b) => Math.min(a, b));
  const across = scale([from < right * 0.2 ? 0 : from, right], [52, width - 14]);
  const up = scale([bottom, top > bottom ? top : bottom + 1], [height - 40, 14]);
  const y = (value) => up(bend(value));

  const rule = (value) => svg("line", { class: "grid", x1: 52, x2: width - 14, y1: up(value), y2: up(value) });
  const yTicks = ticks(bottom, top, height / 55);
  const named = (value) => (log ? trimmed(10 ** value, 2) : trimmed(value, 4));
  drawn.append(
    ...yTicks.map(rule),
    ...yTicks.map((value) => text(46, up(value) + 4, named(value), "end", { class: "axis" })),
    ...ticks(across.back(52), right, width / 80, xs.every(Number.isInteger) ? 1 : 0).map((value) => text(across(value), height - 22, xFormat(value), "middle", { class: "axis" })),
    text((52 + width - 14) / 2, height - 5, xName, "middle", { class: "axis name" }),
    text(0, 0, yName, "middle", { class: "axis name", transform: `translate(11 ${(height - 26) / 2}) rotate(-90)` }),
  );

  const clip = `clip-${plotNumber++}`;
  drawn.append(svg("clipPath", { id: clip }, svg("rect", { x: 52, y: 8, width: width - 66, height: height - 48 })));
  const path = (pairs) => pairs.map(([a, b], k) => `${k ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");
  for (const { i, line, points, seeds, x } of series) {
    const { colour, dash } = lookOf(i);
    const faded = page.raised !== null && page.raised !== i ? " faded" : "";
    if (!seeds.length) {
      const there = points.map((p) => [across(p.x), y(p.high)]);
      const back = points.map((p) => [across(p.x), y(p.low)]).reverse();
      drawn.append(svg("path", { class: `band${faded}`, style: `fill:${colour}`, "clip-path": `url(#${clip})`, d: `${path([...there, ...back])}Z` }));
    }
    for (const values of seeds) {
      const d = path(values.flatMap((value, k) => (value === null ? [] : [[across(x(line, k)), y(value)]])));
      drawn.append(svg("path", { class: `seed${faded}`, style: `stroke:${colour}`, d }));
    }
    const look = { class: `curve${faded}`, style: `stroke:${colour}`, "stroke-dasharray": dash };
    drawn.append(svg("path", { ...look, d: path(points.map((p) => [across(p.x), y(p.mean)])) }));
    if (points.length === 1) drawn.append(svg("circle", { cx: across(points[0].x), cy: y(points[0].mean), r: 3, style: `fill:${colour}` }));
  }
  readable(drawn, say, series, { across, y, xName, xFormat, yFormat, height });
}

// Values under the pointer, or under a cursor that the arrow keys move.
function readable(drawn, say, series, { across, y, xName, xFormat, yFormat, height }) {
  const cursor = svg("g", { class: "cursor", visibility: "hidden" });
  drawn.append(cursor);
  const nearest = (points, value) => points.reduce((best, p) => (Math.abs(p.x - value) < Math.abs(best.x - value) ? p : best), points[0]);
  const longest = series.map(({ points }) => points).reduce((a, b) => (b.length > a.length ? b : a), []);
  let place = -1;

  function showAt(value, pointer) {
    const found = series.filter(({ points }) => points.length).map(({ i, line, points }) => ({ i, line, p: nearest(points, value) }));
    if (!found.length) return;
    const shown = nearest(longest, value);
    place = longest.indexOf(shown);
    const at = across(shown.x);
    cursor.setAttribute("visibility", "visible");
    cursor.replaceChildren(
      svg("line", { class: "crosshair", x1: at, x2: at, y1: 14, y2: height - 40 }),
      ...found.map(({ i, p }) => svg("circle", { cx: across(p.x), cy: y(p.mean), r: 3.5, style: `fill:${lookOf(i).colour}` })),
    );
    const band = ({ p }) => (p.n > 1 && page.band !== "seeds" ? ` (${trimmed(p.low, 3)} to ${trimmed(p.high, 3)})` : "");
    found.sort((a, b) => b.p.mean - a.p.mean);
    const rows = found.map((each) => html("div", { class: "row" }, swatch(each.i), html("span", {}, each.line.label),
      html("b", {}, yFormat(each.p.mean)), html("span", { class: "quiet" }, band(each))));
    const box = drawn.getBoundingClientRect();
    const [px, py] = pointer ?? [box.left + at, box.top + 20];
    showTip(px, py, html("div", { class: "quiet" }, `${xName} ${xFormat(shown.x)}`), ...rows);
    if (!pointer) say(`${xName} ${xFormat(shown.x)}: ${found.map((each) => `${each.line.label} ${yFormat(each.p.mean)}`).join("; ")}`);
  }
  const leave = () => {
    hideTip();
    cursor.setAttribute("visibility", "hidden");
  };
  listen(drawn, (x, y, pointer) => showAt(across.back(x), pointer), leave);
  drawn.addEventListener("keydown", (event) => {
    const ends = { Home: 0, End: longest.length - 1 };
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    if (event.key === "Escape") return leave();
    if (!(event.key in ends) && !(event.key in moves)) return;
    event.preventDefault();
    const next = event.key in ends ? ends[event.key] : Math.min(Math.max(place + moves[event.key], 0), longest.length - 1);
    if (longest.length) showAt(longest[next].x, null);
  });
}

// Buttons that show and hide lines, the same in every section that has curves.
const legends = [];
function legend() {
  if (data.lines.length < 2) return "";
  const made = html("div", { class: "legend", role: "group", "aria-label": "Lines shown" });
  data.lines.forEach((line, i) => {
    const raise = (to) => () => {
      page.raised = to;
      drawAll((each) => each.curves);
    };
    const toggle = () => {
      page.hidden.has(i) ? page.hidden.delete(i) : page.hidden.add(i);
      page.raised = null;
      for (const each of legends) each.children[i].setAttribute("aria-pressed", String(!page.hidden.has(i)));
      drawAll((each) => each.curves);
    };
    const listen = { onclick: toggle, onpointerenter: raise(i), onpointerleave: raise(null) };
    const state = { "aria-pressed": String(!page.hidden.has(i)), title: "Show or hide this line" };
    made.append(html("button", { type: "button", ...state, ...listen }, swatch(i), line.label));
  });
  legends.push(made);
  return made;
}
