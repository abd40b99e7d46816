// The sliders of utils/explore.py on the website. A figure holds its first frame as SVG and, as JSON, what
// differs in the other ones; moving a slider sets only the attributes and texts that change.
(() => {
  "use strict";

  // One panel of a figure: knows the SVG of each group of frames and which values it shows now.
  class Panel {
    constructor(element, data, first) {
      this.element = element;
      this.data = data;
      this.views = new Map();
      const [group, ...values] = data.frames[first];
      this.views.set(group, this.view(element.querySelector("svg"), values));
      this.shown = group;
    }

    view(svg, values) {
      return { svg, elements: [svg, ...svg.querySelectorAll("*")], values };
    }

    show(number) {
      const [group, ...values] = this.data.frames[number];
      const { svg, slots, values: texts } = this.data.groups[group];
      if (!this.views.has(group)) {
        const box = document.createElement("template");
        box.innerHTML = svg;
        this.views.set(group, this.view(box.content.firstElementChild, []));
      }
      const view = this.views.get(group);
      values.forEach((value, slot) => {
        if (view.values[slot] === value) return;
        const [element, attribute] = slots[slot];
        if (attribute) view.elements[element].setAttribute(attribute, texts[value]);
        else view.elements[element].textContent = texts[value];
      });
      view.values = values;
      if (this.shown !== group) this.element.replaceChildren(view.svg);
      this.shown = group;
    }
  }

  function connect(figure) {
    const script = figure.querySelector("script[type='application/json']");
    if (!script || figure.dataset.connected) return;
    figure.dataset.connected = "true";
    const data = JSON.parse(script.textContent);
    const controls = figure.querySelector(".explore-controls");
    const inputs = [...controls.querySelectorAll("input")];
    const outputs = [...controls.querySelectorAll("output")];
    const caption = figure.querySelector("figcaption");
    const panels = [...figure.querySelectorAll(".explore-panel")].map(
      (element, number) => new Panel(element, data.panels[number], data.first));
    const start = inputs.map((input) => input.defaultValue);
    let waiting = false;

    function draw() {
      waiting = false;
      const number = inputs.reduce(
        (sum, input, slider) => sum * data.texts[slider].length + Number(input.value), 0);
      panels.forEach((panel) => panel.show(number));
      if (caption.textContent !== data.captions[number]) caption.textContent = data.captions[number];
    }

    function update() {
      inputs.forEach((input, slider) => {
        const text = data.texts[slider][input.value];
        outputs[slider].textContent = text;
        input.setAttribute("aria-valuetext", text);
      });
      if (!waiting) requestAnimationFrame(draw);        // many events, but one drawing for each screen update
      waiting = true;
    }

    inputs.forEach((input) => input.addEventListener("input", update));
    figure.querySelector(".explore-reset").addEventListener("click", () => {
      inputs.forEach((input, slider) => { input.value = start[slider]; });
      update();
    });
    controls.hidden = false;
  }

  function connectAll() {
    document.querySelectorAll("figure.explore").forEach(connect);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", connectAll);
  else connectAll();
})();
