// Puts the figures into their places and listens to the controls that concern the whole page.

const MANY = 10; // lines beyond which only the most accurate are drawn at first
const losses = { logarithmic: false };

function learningCurves() {
  const here = document.querySelector("#curves .figures");
  if (!here) return;
  const shared = { x: (line, k) => line.rounds[k], xName: () => "round", xFormat: grouped };
  const accuracy = curveFigure({ name: "accuracy", caption: "Test accuracy", column: "accuracy", yName: "test accuracy (%)", yFormat: percent, ...shared });
  const loss = curveFigure({
    name: "loss", caption: "Test loss", column: "loss", yName: "test loss", yFormat: (value) => trimmed(value, 4),
    logarithmic: () => losses.logarithmic, ...shared,
  });
  const controls = [legend()];
  if (data.lines.some((line) => line.accuracy.length > 1)) {
    controls.push(choice("Band", BANDS, page.band, (value) => {
      page.band = value;
      drawAll((each) => each.curves);
    }));
  }
  controls.push(html("label", { class: "choice" }, html("input", { type: "checkbox", onchange: (event) => {
    losses.logarithmic = event.target.checked;
    loss.draw();
  } }), " logarithmic loss"));
  here.before(html("div", { class: "controls" }, ...controls));
  here.append(accuracy.node, loss.node);
  if (data.lines.some((line) => !line.every_round)) here.after(html("p", { class: "quiet" }, "Long curves are thinned out: not every round is drawn."));
}

function hideMost() {
  if (data.lines.length <= MANY) return;
  const order = data.lines.map((line, i) => [lastAccuracies(line).length ? average(lastAccuracies(line)) : -1, i]).sort((a, b) => b[0] - a[0]);
  for (const [, i] of order.slice(MANY)) page.hidden.add(i);
}

function themes() {
  const buttons = [...document.querySelectorAll("[data-theme]")].filter((node) => node.tagName === "BUTTON");
  const put = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.theme === theme));
    drawAll();
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      put(button.dataset.theme);
      try {
        localStorage.setItem("ccfed-theme", button.dataset.theme);
      } catch {
        // A browser may keep nothing for files: the choice then lasts as long as the page.
      }
    });
  }
  let kept = null;
  try {
    kept = localStorage.getItem("ccfed-theme");
  } catch {
    // As above.
  }
  put(["light", "dark"].includes(kept) ? kept : "system");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());
}

document.body.append(tip);
document.querySelectorAll(".swatch[data-line]").forEach((node) => node.replaceWith(swatch(Number(node.dataset.line))));
hideMost();
learningCurves();
costFigures();
costDownload();
energyAssumption();
clientFigures();
themes();

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) drawAll();
  width = innerWidth;
});
addEventListener("scroll", hideTip, { passive: true });
