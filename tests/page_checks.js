// Checks of a page that need its document; test_site.py calls them. Each gives a list of problems.
window.checks = {
  // Formulas that MathJax left as TeX or could not read.
  formulas() {
    const problems = [];
    for (const element of document.querySelectorAll(".math")) {
      if (!element.querySelector("mjx-container"))
        problems.push(`formula not set: ${element.textContent.slice(0, 60)}`);
    }
    for (const element of document.querySelectorAll("mjx-merror, [data-mjx-error]"))
      problems.push(`MathJax error: ${element.dataset.mjxError ?? element.textContent.slice(0, 60)}`);
    for (const element of document.querySelectorAll("mjx-container mtext")) {
      if (/^\\[a-zA-Z]+$/.test(element.textContent))
        problems.push(`unknown to MathJax: ${element.textContent}`);
    }
    const skipped = "code, pre, script, noscript, style, textarea, mjx-container, svg";
    const tex = /\$[^$\n]+\$|\\\(|\\\[|\\begin\{|\\(frac|theta|mathbb|pi|sum|gamma)\b/;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      if (walker.currentNode.parentElement.closest(skipped)) continue;
      const text = walker.currentNode.textContent, found = text.match(tex);
      if (found)
        problems.push(`TeX in the text: ${text.slice(Math.max(0, found.index - 20), found.index + 40)}`);
    }
    return problems;
  },

  // Figures and images without a text for readers who do not see them.
  alternatives() {
    const problems = [];
    for (const image of document.querySelectorAll("img")) {
      if (!image.hasAttribute("alt") || (image.closest("article") && !image.alt.trim()))
        problems.push(`image without alternative text: ${image.src}`);
    }
    for (const svg of document.querySelectorAll("article svg")) {        // but not icons, which are hidden
      if (!svg.closest("[role=img][aria-label], mjx-container, a, button, [aria-hidden=true]"))
        problems.push(`picture outside a figure with a name: ${svg.outerHTML.slice(0, 80)}`);
    }
    for (const figure of document.querySelectorAll("figure.explore")) {
      if (!figure.querySelector("[role=img]")?.getAttribute("aria-label")?.trim())
        problems.push(`figure without alternative text: ${figure.outerHTML.slice(0, 80)}`);
    }
    return problems;
  },

  // What makes the page scroll sideways.
  width() {
    const room = document.documentElement.clientWidth, needed = document.documentElement.scrollWidth;
    if (needed <= room) return [];
    const wide = [...document.querySelectorAll("article *")].find(
      (element) => element.getBoundingClientRect().right > room + 1);
    return [`scrolls sideways: ${needed} > ${room} pixels: ${wide?.outerHTML.slice(0, 80)}`];
  },

  // Letters of figures that are too small to read.
  letters(least) {
    const problems = [];
    for (const svg of document.querySelectorAll("figure.explore svg")) {
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      for (const text of svg.querySelectorAll("text")) {
        const sizes = [text, ...text.children].map((part) => parseFloat(part.style.fontSize) || 0);
        const pixels = Math.max(...sizes) * scale;
        if (text.textContent.trim() && pixels < least)
          problems.push(`letters of ${pixels.toFixed(1)} pixels, "${text.textContent}": panel too wide`);
      }
    }
    return problems;
  },

  // Letters of figures that contrast too little with what lies behind their middle.
  contrast(least) {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (color) => {                                            // any CSS colour as four numbers
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const luminance = ([red, green, blue]) =>
      0.2126 * light(red / 255) + 0.7152 * light(green / 255) + 0.0722 * light(blue / 255);
    const ratio = (a, b) => {
      const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
      return (high + 0.05) / (low + 0.05);
    };
    const mix = (above, share, below) => above.map((value, i) => share * value + (1 - share) * below[i]);
    const opacity = (element) =>
      element instanceof SVGElement ? getComputedStyle(element).opacity * opacity(element.parentElement) : 1;

    const behind = (text) => {
      const box = text.getBoundingClientRect();
      let color = [255, 255, 255, 255];
      const stack = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
      for (const element of stack.reverse()) {
        const style = getComputedStyle(element);
        if (!(element instanceof SVGElement)) {
          const own = rgba(style.backgroundColor);
          color = mix(own, own[3] / 255, color);
        } else if (["path", "rect", "use"].includes(element.tagName) && style.fill !== "none") {
          color = mix(rgba(style.fill), style.fillOpacity * opacity(element), color);
        }
      }
      return color;
    };

    const problems = [];
    for (const text of document.querySelectorAll("figure.explore svg text")) {
      if (!text.textContent.trim()) continue;
      text.scrollIntoView({ block: "center" });
      const below = behind(text), part = text.querySelector("tspan") ?? text;
      const found = ratio(mix(rgba(getComputedStyle(part).fill), opacity(part), below), below);
      if (found < least)
        problems.push(`letters hard to read (${found.toFixed(1)} : 1): "${text.textContent}"`);
    }
    scrollTo(0, 0);
    return problems;
  },

  // Figures that need scripts to show their first frame, or show sliders that do not work without.
  withoutScripts(figures) {
    const height = (element) => element?.getBoundingClientRect().height ?? 0;
    return figures.flatMap((figure, number) => {
      const problems = [];
      for (const panel of figure.querySelectorAll(".explore-panel"))
        if (height(panel.querySelector("svg")) < 50) problems.push(`figure ${number} shows nothing`);
      if (figure.querySelector("script") && height(figure.querySelector("noscript p")) < 10)
        problems.push(`figure ${number} does not say that the sliders need JavaScript`);
      if (height(figure.querySelector(".explore-controls")) > 0)
        problems.push(`figure ${number} shows dead sliders`);
      return problems;
    });
  },

  // Names and sizes of an explorer's controls.
  controls(figure) {
    const problems = [];
    for (const input of figure.querySelectorAll("input")) {
      if (!input.labels[0]?.textContent.trim()) problems.push("slider without a visible name");
      if (input.getBoundingClientRect().width < 120) problems.push("slider shorter than 120 pixels");
    }
    for (const control of figure.querySelectorAll("input, button")) {
      const { width, height } = control.getBoundingClientRect();
      if (Math.min(width, height) < 44) problems.push(`target of ${width} x ${height} pixels`);
    }
    if (figure.querySelector("figcaption").getAttribute("aria-live") !== "polite")
      problems.push("caption is not announced");
    return problems;
  },

  // What an explorer shows and says, once the page has drawn it.
  async state(figure) {
    for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
    const inputs = [...figure.querySelectorAll("input")];
    return {
      positions: inputs.map((input) => Number(input.value)),
      spoken: inputs.map((input) => input.getAttribute("aria-valuetext")),
      written: [...figure.querySelectorAll("output")].map((output) => output.textContent),
      caption: figure.querySelector("figcaption").textContent,
      pictures: [...figure.querySelectorAll(".explore-panel svg")].map(
        (svg) => new XMLSerializer().serializeToString(svg)),
    };
  },
};
