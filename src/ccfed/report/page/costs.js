// Accuracy against what it cost: the curves with a cost axis of choice, and what it took to reach an accuracy.

const energyOf = (line, steps) => (line.step_flops === null ? null : steps * line.step_flops * page.joules);

const COSTS = {
  client_steps: ["client-steps so far", (line, k) => average(across(line.client_steps, k)), inThousands],
  bytes: ["bytes up and down so far", (line, k) => average(across(line.bytes, k)), (value) => inUnits(value, "B")],
  energy: ["estimated energy so far", (line, k) => energyOf(line, average(across(line.client_steps, k))), (value) => inUnits(value, "J")],
  rounds: ["round", (line, k) => line.rounds[k], grouped],
};
const worth = { cost: "client_steps", target: null };

function costFigures() {
  const here = document.querySelector("#worth .figures");
  if (!here) return;
  const made = curveFigure({
    name: "accuracy-for-cost",
    caption: "Accuracy for its cost",
    column: "accuracy",
    x: (line, k) => COSTS[worth.cost][1](line, k),
    cost: () => (worth.cost === "rounds" ? null : { energy: "joules" }[worth.cost] ?? worth.cost),
    xName: () => COSTS[worth.cost][0],
    xFormat: (value) => COSTS[worth.cost][2](value),
    yName: "test accuracy (%)",
    yFormat: percent,
  });
  const axis = choice("Cost", Object.entries(COSTS).map(([key, [name]]) => [key, name.replace(" so far", "")]), worth.cost, (value) => {
    worth.cost = value;
    made.draw();
  });
  here.before(html("div", { class: "controls" }, legend(), axis));
  here.append(made.node, targetFigure());
}

// What each line had spent when it first reached an accuracy: means over the seeds that reached it.
function targetFigure() {
  const lasts = data.lines.flatMap(lastAccuracies).filter((value) => value > 0);
  const best = lasts.length ? lasts.reduce((a, b) => Math.max(a, b)) : 100;
  worth.target = best > 10 ? Math.floor((best * 0.9) / 5) * 5 : Math.floor(best);
  const field = { type: "number", min: 0, max: 100, step: "any", value: worth.target, inputmode: "decimal" };
  const plot = html("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": "Costs of reaching an accuracy" });
  const made = {
    draw: () => plot.replaceChildren(reachedTable()),
  };
  page.figures.push(made);
  const input = html("input", { ...field, oninput: (event) => {
    worth.target = Number(event.target.value);
    made.draw();
  } });
  const save = html("button", { type: "button", title: "Download this table", onclick: () => {
    download("cost-of-accuracy.csv", "text/csv", csv(["line", "target", "seeds", "reached", "round", "client_steps", "bytes", "joules"],
      data.lines.map((line) => {
        const r = reached(line);
        return [line.label, worth.target, line.accuracy.length, r.n, ...[r.round, r.client_steps, r.bytes, r.energy].map((value) => (value === null ? "" : trimmed(value, 6)))];
      })));
  } }, "CSV");
  const caption = html("figcaption", {}, html("label", {}, "Cost of reaching ", input, " % accuracy"), html("span", { class: "saves" }, save));
  const coarse = data.lines.some((line) => !line.every_round) ? " Long curves are thinned out, so this is exact to within a few rounds." : "";
  const words = `When it was first reached; means over the seeds that reached it.${coarse}`;
  return html("figure", { id: "figure-cost-of-accuracy" }, caption, plot, html("p", { class: "quiet" }, words));
}

function reached(line) {
  const firsts = line.accuracy.map((values) => values.findIndex((value) => value !== null && value >= worth.target));
  const there = firsts.map((k, s) => [k, s]).filter(([k]) => k >= 0);
  if (!there.length) return { n: 0, round: null, client_steps: null, bytes: null, energy: null };
  const mean = (of) => average(there.map(of));
  const steps = mean(([k, s]) => line.client_steps[s][k]);
  const round = mean(([k]) => line.rounds[k]);
  return { n: there.length, round, client_steps: steps, bytes: mean(([k, s]) => line.bytes[s][k]), energy: energyOf(line, steps) };
}

function reachedTable() {
  const head = ["", "seeds", "round", "client-steps", "energy", "bytes"].map((name) => html("th", { scope: "col" }, name));
  const rows = data.lines.map((line, i) => {
    const r = reached(line);
    const cells = r.n
      ? [`${r.n} of ${line.accuracy.length}`, grouped(r.round), grouped(r.client_steps), r.energy === null ? "–" : inUnits(r.energy, "J"), inUnits(r.bytes, "B")]
      : ["not reached", "–", "–", "–", "–"];
    return html("tr", {}, html("th", { scope: "row" }, swatch(i), line.label), ...cells.map((cell) => html("td", {}, cell)));
  });
  return html("table", {}, html("thead", {}, html("tr", {}, ...head)), html("tbody", {}, ...rows));
}

// The table of costs as numbers; energy follows the assumption.
function costDownload() {
  const names = Object.keys(data.lines[0].costs);
  const rows = () => data.lines.map((line) => {
    const last = lastAccuracies(line);
    const { flops } = line.costs;
    const joules = flops === null ? "" : trimmed(flops * page.joules, 6);
    return [line.label, line.seeds.length, last.length ? trimmed(average(last), 6) : "", ...names.map((name) => line.costs[name]), joules];
  });
  const save = () => download("costs.csv", "text/csv", csv(["line", "seeds", "accuracy_mean", ...names, "joules"], rows()));
  const button = html("button", { type: "button", title: "Download this table", onclick: save }, "CSV");
  document.querySelector("#costs h2").after(html("span", { class: "saves beside" }, button));
}

// The one number that the folders cannot tell: what an operation costs the devices.
function energyAssumption() {
  const here = document.getElementById("assumption");
  if (data.lines.every((line) => line.step_flops === null)) {
    const begun = data.lines.some((line) => line.rounds.length);
    return missing(here, begun ? "FLOPs and energy are unknown: the folders do not tell what a step costs." : "No round has been played yet.");
  }
  const field = { type: "number", min: 0, step: "any", value: trimmed(page.joules * 1e12, 6), inputmode: "decimal" };
  const input = html("input", { ...field, oninput: (event) => {
    page.joules = Math.max(Number(event.target.value) || 0, 0) * 1e-12;
    said.textContent = perWatt();
    for (const cell of document.querySelectorAll("[data-flops]")) cell.textContent = inUnits(Number(cell.dataset.flops) * page.joules, "J");
    drawAll();
  } });
  const perWatt = () => (page.joules > 0 ? ` (${inUnits(1 / page.joules, "FLOP")} a second for each watt)` : "");
  const said = html("span", {}, perWatt());
  here.append(html("p", {}, html("label", {}, "Energy is estimated at ", input, " picojoules per FLOP"), said,
    ": an assumption, not a measurement, so put in your device's. It covers training only, neither radio nor idling."));
}
