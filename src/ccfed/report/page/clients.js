// One run's clients: what they hold, when they took part, and whether they trained as often as their budget allows.

// At first a run is shown that skips: CC-FedAvg's, if there is one.
const total = (values) => (values ?? []).reduce((sum, value) => sum + value, 0);
const skips = data.maps.map((map, i) => (total(map.trained) < total(map.selected) ? i : -1)).filter((i) => i >= 0);
const chosen = { map: skips.find((i) => data.lines[data.maps[i].line].method === "cc-fedavg") ?? skips[0] ?? 0 };

function clientFigures() {
  const here = document.querySelector("#clients .figures");
  if (!here) return;
  if (!data.maps.length) return here.append(html("p", { class: "quiet" }, "No run tells anything of its clients."));
  const made = [holdingsFigure(), participationFigure(), budgetFigure()];
  if (data.maps.length > 1) {
    const named = (map) => data.lines[map.line].label + (map.seed === null ? "" : `, seed ${map.seed}`);
    const redraw = (value) => {
      chosen.map = Number(value);
      made.forEach((each) => each.draw());
    };
    here.before(html("div", { class: "controls" }, choice("Run", data.maps.map((map, i) => [String(i), named(map)]), String(chosen.map), redraw)));
  }
  here.append(...made.map((each) => each.node));
}

const map = () => data.maps[chosen.map];
const heldTable = () => data.held[map().held];
const ofClients = (row, step) => wholes(row * step, Math.min(step, map().clients - row * step));
const ends = (place, step, all) => [place * step, Math.min((place + 1) * step, all) - 1];
const named = (row, step) => `client${step > 1 ? "s" : ""} ${ofClients(row, step)}`;
const heightOf = (rows) => Math.round(Math.min(Math.max(rows * 16, 150), 420)) + 44;

function holdingsFigure() {
  const table = () => {
    const held = heldTable();
    const rows = (held?.counts ?? []).map((row, r) => [...ends(r, held.step, map().clients), ...row]);
    return [["first_client", "last_client", ...(held?.classes ?? [])], rows];
  };
  return figure("who-holds-what", "Samples of each class", (plot, say) => {
    const held = heldTable();
    if (!held) return missing(plot, "The folder does not tell who holds what.");
    const most = held.counts.flat().reduce((a, b) => Math.max(a, b), 1);
    const counted = (count) => `${trimmed(count, 4)} samples${held.step > 1 ? " each" : ""}`;
    drawMap(plot, say, {
      label: `Samples of ${held.classes.length} classes at ${grouped(map().clients)} clients. Arrow keys read values.`,
      rows: held.counts.length,
      columns: held.classes.length,
      step: held.step,
      // Square roots, so that few samples can still be told from none.
      shade: (r, c) => (held.counts[r][c] ? 0.12 + 0.88 * Math.sqrt(held.counts[r][c] / most) : null),
      number: (r, c) => (held.counts[r][c] ? trimmed(held.counts[r][c], 3) : ""),
      describe: (r, c) => `${named(r, held.step)}, class ${held.classes[c]}: ${counted(held.counts[r][c])}`,
      xName: "class",
      xLabel: (c) => held.classes[c],
      xMarked: (c, every) => c % every === 0,
      legend: [["none", null], ["few", 0.2], [`${trimmed(most, 4)} samples`, 1]],
    });
  }, table);
}

function unpacked(part) {
  if (!part.bytes) part.bytes = Uint8Array.from(atob(part.cells), (letter) => letter.charCodeAt(0));
  return part.bytes;
}

const NOBODY = 255;
function participationFigure() {
  const share = (part, r, c) => {
    const cell = unpacked(part)[r * part.columns + c];
    return cell === NOBODY ? null : cell / (NOBODY - 1);
  };
  const rounds = (part, c) => wholes(c * part.span + 1, Math.min(part.span, part.rounds - c * part.span));
  const table = () => {
    const part = map().part;
    const rows = [];
    for (let r = 0; part && r < part.rows; r++) {
      for (let c = 0; c < part.columns; c++) {
        const cell = share(part, r, c);
        const [first, last] = ends(c, part.span, part.rounds);
        rows.push([...ends(r, part.step, map().clients), first + 1, last + 1, cell === null ? "" : trimmed(cell, 3)]);
      }
    }
    return [["first_client", "last_client", "first_round", "last_round", "trained_of_selected"], rows];
  };
  return figure("participation", "Who trained when", (plot, say) => {
    const part = map().part;
    if (!part) return missing(plot, "Not known: participation.npz, which a run leaves when it ends, is missing or cannot be read.");
    const single = part.step === 1 && part.span === 1;
    const state = (cell) => {
      if (cell === null) return "not selected";
      if (!single) return `${(cell * 100).toFixed(0)} % of those selected trained`;
      return cell ? "trained" : "skipped";
    };
    drawMap(plot, say, {
      label: `Who was selected and trained in ${grouped(part.rounds)} rounds, ${grouped(map().clients)} clients. Arrow keys read values.`,
      rows: part.rows,
      columns: part.columns,
      step: part.step,
      shade: (r, c) => {
        const cell = share(part, r, c);
        return cell === null ? null : 0.18 + 0.82 * cell;
      },
      number: () => "",
      describe: (r, c) => `${named(r, part.step)}, round${part.span > 1 ? "s" : ""} ${rounds(part, c)}: ${state(share(part, r, c))}`,
      xName: "round",
      xLabel: (c) => grouped(c * part.span + 1),
      // The first round, and those that hold a multiple of the distance.
      xMarked: (c, every) => c === 0 || (c + 1) % every === 0,
      legend: single ? [["not selected", null], ["skipped", 0.18], ["trained", 1]] : [["nobody selected", null], ["all skipped", 0.18], ["all trained", 1]],
    });
  }, table);
}

const partsOf = (name) => styled(name).match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16));

function colour(shade) {
  const [pale, full] = [partsOf("--pale"), partsOf("--full")];
  return pale.map((from, k) => Math.round(from + (full[k] - from) * shade));
}

// The ratio of two colours' luminance, by which one is read on the other (WCAG).
function contrast(...colours) {
  const linear = (part) => (part <= 10 ? part / 3294 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const [dark, light] = colours.map(([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)).sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

const textOn = (shade) => {
  const [ink, onFull] = ["--ink", "--on-full"].map((name) => contrast(colour(shade), partsOf(name)));
  return onFull > ink ? "--on-full" : "--ink";
};

// Rows are clients. `shade` is null (nothing) or 0..1; a picture of one pixel a cell is stretched over the axes.
function drawMap(plot, say, { label, rows, columns, step, shade, number, describe, xName, xLabel, xMarked, legend }) {
  const width = Math.max(plot.clientWidth, 200);
  const height = heightOf(rows);
  const drawn = picture(plot, width, height, label);
  const left = clientAxis(drawn, rows, step, height);
  const across = scale([0, columns], [left, width - 8]);
  const down = scale([0, rows], [6, height - 38]);
  const canvas = html("canvas", { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < columns; c++) {
      const value = shade(r, c);
      if (value !== null) pixels.data.set([...colour(value), 255], (r * columns + c) * 4);
    }
  }
  context.putImageData(pixels, 0, 0);
  const box = { x: left, y: 6, width: width - 8 - left, height: height - 44 };
  drawn.append(
    svg("rect", { class: "empty", ...box }),
    svg("image", { class: "pixels", ...box, preserveAspectRatio: "none", href: canvas.toDataURL() }),
  );
  if (rows <= 24 && columns <= 24) {
    for (let c = 1; c < columns; c++) drawn.append(svg("line", { class: "seam", x1: across(c), x2: across(c), y1: 6, y2: height - 38 }));
    for (let r = 1; r < rows; r++) drawn.append(svg("line", { class: "seam", x1: left, x2: width - 8, y1: down(r), y2: down(r) }));
  }
  const [wide, tall] = [across(1) - across(0), down(1) - down(0)];
  if (wide >= 24 && tall >= 12) {
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const strong = textOn(shade(r, c) ?? 0) === "--on-full" ? " on-full" : "";
        drawn.append(text(across(c + 0.5), down(r + 0.5) + 4, number(r, c), "middle", { class: `axis count${strong}` }));
      }
    }
  }
  const letters = Math.max(...Array.from({ length: columns }, (_, c) => xLabel(c).length));
  const every = Math.max(Math.ceil((letters * 7 + 8) / wide), 1);
  const nice = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500].find((n) => n >= every) ?? every;
  let taken = -Infinity;
  for (let c = 0; c < columns; c++) {
    const half = xLabel(c).length * 3.5;
    if (!xMarked(c, nice) || across(c + 0.5) - half < taken + 5) continue;
    drawn.append(text(across(c + 0.5), height - 24, xLabel(c), "middle", { class: "axis" }));
    taken = across(c + 0.5) + half;
  }
  drawn.append(text((left + width - 8) / 2, height - 7, xName, "middle", { class: "axis name" }));
  plot.append(html("div", { class: "shades" }, ...legend.map(([words, value]) => html("span", {},
    html("i", { style: value === null ? "" : `background:rgb(${colour(value).join(",")})` }), words))));
  cellReader(drawn, say, { rows, columns, across, down, describe, wide, tall });
}

function clientAxis(drawn, rows, step, height) {
  const down = scale([0, rows], [6, height - 38]);
  const left = 24 + 7 * grouped(map().clients).length;
  for (const client of ticks(0, rows * step - 1, Math.min(rows, (height - 44) / 26))) {
    if (Number.isInteger(client)) drawn.append(text(left - 5, down((Math.floor(client / step)) + 0.5) + 4, grouped(client), "end", { class: "axis" }));
  }
  drawn.append(text(0, 0, "client", "middle", { class: "axis name", transform: `translate(11 ${(height - 32) / 2}) rotate(-90)` }));
  return left;
}

function cellReader(drawn, say, { rows, columns, across, down, describe, wide, tall }) {
  const cursor = svg("rect", { class: "cursor cell", visibility: "hidden", width: Math.max(wide, 3), height: Math.max(tall, 3) });
  drawn.append(cursor);
  let place = [0, -1];
  function showAt(r, c, pointer) {
    place = [r, c];
    cursor.setAttribute("x", across(c));
    cursor.setAttribute("y", down(r));
    cursor.setAttribute("visibility", "visible");
    const box = drawn.getBoundingClientRect();
    const words = describe(r, c);
    showTip(...(pointer ?? [box.left + across(c + 1), box.top + down(r)]), html("div", {}, words));
    if (!pointer) say(words);
  }
  const leave = () => {
    hideTip();
    cursor.setAttribute("visibility", "hidden");
  };
  listen(drawn, (x, y, pointer) => {
    const [r, c] = [Math.floor(down.back(y)), Math.floor(across.back(x))];
    if (r < 0 || c < 0 || r >= rows || c >= columns) leave();
    else showAt(r, c, pointer);
  }, leave);
  drawn.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") return leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    showAt(within(place[0] + moves[event.key][0], rows), within(place[1] + moves[event.key][1], columns), null);
  });
}

// How often each client trained when it was selected, beside its budget p.
function budgetFigure() {
  const stepOf = () => map().part?.step ?? heldTable()?.step ?? 1;
  const rowsOf = () => {
    const { p, selected, trained } = map();
    const count = (p ?? selected ?? []).length;
    return Array.from({ length: count }, (_, r) => ({
      p: p?.[r] ?? null,
      selected: selected?.[r] ?? null,
      trained: trained?.[r] ?? null,
      share: selected?.[r] ? trained[r] / selected[r] : null,
    }));
  };
  const table = () => [
    ["first_client", "last_client", "p", "rounds_selected", "rounds_trained"],
    rowsOf().map((row, r) => [...ends(r, stepOf(), map().clients), ...[row.p, row.selected, row.trained].map((value) => value === null ? "" : trimmed(value, 6))]),
  ];
  return figure("budgets", "Trained, and budget p", (plot, say) => {
    const rows = rowsOf();
    if (!rows.length) return missing(plot, "The folder does not tell the budgets.");
    const width = Math.max(plot.clientWidth, 160);
    const height = heightOf(rows.length);
    const drawn = picture(plot, width, height, "How often each client trained when it was selected, and its budget p. Arrow keys read values.");
    const left = clientAxis(drawn, rows.length, stepOf(), height);
    const across = scale([0, 1], [left, width - 16]);
    const down = scale([0, rows.length], [6, height - 38]);
    const thick = down(1) - down(0);
    for (const value of [0, 0.25, 0.5, 0.75, 1]) {
      drawn.append(svg("line", { class: "grid", x1: across(value), x2: across(value), y1: 6, y2: height - 38 }));
      if (width > 220 || value % 0.5 === 0) drawn.append(text(across(value), height - 24, String(value * 100), "middle", { class: "axis" }));
    }
    drawn.append(text((left + width - 16) / 2, height - 7, "% of its rounds", "middle", { class: "axis name" }));
    const gap = thick > 5 ? 1.5 : 0;
    rows.forEach((row, r) => {
      if (row.share !== null) drawn.append(svg("rect", { class: "share", x: left, y: down(r) + gap, width: across(row.share) - left, height: Math.max(thick - 2 * gap, 0.5) }));
    });
    rows.forEach((row, r) => {
      if (row.p !== null) drawn.append(svg("line", { class: "budget", x1: across(row.p), x2: across(row.p), y1: down(r), y2: down(r + 1) }));
    });
    plot.append(html("div", { class: "shades" }, html("span", {}, html("i", { class: "share" }), "trained"), html("span", {}, html("i", { class: "budget" }), "budget p")));
    const said = (row) => [
      row.share === null ? null : `trained in ${(row.share * 100).toFixed(0)} % of the ${trimmed(row.selected, 4)} rounds in which it was selected`,
      row.selected === 0 ? "never selected" : null,
      row.p === null ? null : `budget p ${trimmed(row.p, 3)}`,
    ];
    cellReader(drawn, say, {
      rows: rows.length,
      columns: 1,
      across: Object.assign((c) => (c ? width - 16 : left), { back: () => 0 }),
      down,
      describe: (r) => `${named(r, stepOf())}: ${said(rows[r]).filter(Boolean).join(", ")}`,
      wide: width - 16 - left,
      tall: thick,
    });
  }, table);
}
